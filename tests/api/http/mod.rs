//! Requests and answers: paths, methods, framing, limits, streams.

mod limits;
mod requests;
mod routes;
mod status;
mod streaming;
