//! The proxy, driven over the loopback by raw clients and by curl.

mod curl;
mod limits;
mod plain;
mod refusals;
mod ruled;
mod scene;
mod tunnels;
