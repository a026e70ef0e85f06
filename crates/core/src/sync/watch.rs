//! Who may end a run early.

use std::os::fd::OwnedFd;

use crate::sync::cancel::CancelToken;

/// What may end a run beside its limits.
#[derive(Debug)]
pub struct Watch {
    /// Raised by whoever wants the run to end.
    pub cancel: CancelToken,
    /// The client's socket, where a client that goes away ends its run.
    pub client: Option<OwnedFd>,
}
