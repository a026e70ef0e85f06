//! The HTTP front: bytes of strangers in, service values through, bytes out.

mod error;
mod request;
mod request_log;
mod response;
mod sse;

mod checks;
mod jobs;
mod metrics;
mod router;
mod run;
mod server;

pub use self::server::limits::{Boxes, HttpLimits, Shortage};
pub use self::server::shutdown::ShutdownHandle;
pub use checks::{Checks, RunCheck};
pub use server::{HttpSettings, NotBound, Server};
