//! Requests and answers on the wire.

pub mod framing;
mod routes;
mod runs;
mod streaming;
