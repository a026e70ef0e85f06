//! Programs that talk: their output, their input, their viewers.

mod arrival_order;
mod byte_window;
mod kept_bytes;
mod line_window;
mod log;
mod session;
pub(super) mod signal;
mod start;
pub(super) mod table;

pub use byte_window::OutputChunk;
pub use line_window::LinePage;
pub use log::{SessionLog, Window};
pub use session::{Session, SessionEnd, SessionPage, SessionState, Viewer};
pub use start::{StartRequest, start};
pub use table::no_session;
