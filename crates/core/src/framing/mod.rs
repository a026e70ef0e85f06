//! Where messages of HTTP/1 end, for the servers that give hyper a connection's bytes.

pub mod chunk_scan;
pub mod head;
