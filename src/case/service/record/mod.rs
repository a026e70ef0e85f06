//! What a service keeps of a run besides what every run has.

mod events;
mod service_file;

pub use events::{EVENTS, EventLog};
pub use service_file::{SERVICE_FILE, SERVICE_FILE_BYTES_MAX, ServiceFile};
