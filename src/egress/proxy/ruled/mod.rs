//! Requests for hosts with rules: judged one by one, written anew to the host, and answered with what the
//! host says, without the secrets that were sent.

mod answer;
mod answer_body;
pub mod dial;
pub mod host;
mod incoming;
mod meter;
mod pool;
mod sent_body;
pub mod tunnel;
mod websocket;
mod whole_reads;
