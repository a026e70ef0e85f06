//! The HTTP front: bytes of strangers in, service values through, bytes out.

mod accept;
mod authorization;
mod byte_range;
mod checks;
mod chunk_scan;
mod connection;
mod counts;
mod event_stream;
mod event_text;
mod exchange;
mod file_pieces;
mod head;
mod in_flight;
mod jobs;
mod limits;
mod log_lines;
mod message_gate;
mod metrics;
mod origin;
mod output_queue;
mod pace;
mod percent;
mod refusal;
mod reply;
mod request_body;
mod router;
mod run;
mod run_thread;
mod run_threads;
mod server;
mod shutdown;
mod unread;

pub use checks::{Checks, RunCheck};
pub use limits::{Boxes, HttpLimits, Shortage};
pub use server::{HttpSettings, NotBound, Server};
pub use shutdown::ShutdownHandle;
