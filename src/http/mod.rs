//! The HTTP server: parses requests, calls the services and writes responses.

mod cases;
mod engine;
mod error;
mod evaluations;
mod jobs;
mod metrics;
mod request;
mod response;
mod router;
mod run;
mod server;
mod services;
mod status;

pub use self::cases::settings::CaseHttpSettings;
pub use self::evaluations::settings::{EvaluationHttpSettings, EvaluationRequestBounds};
pub use self::server::limits::{DescriptorShortage, HttpLimits, SandboxCounts};
pub use self::server::settings::HttpSettings;
pub use self::server::shutdown::ShutdownHandle;
pub use self::server::{BindError, Server};
pub use self::services::{Checks, RunCheck, Services};
