//! Whether a copy that is being made is still wanted.

use std::fmt;

use crate::error::WorkspaceFault;

/// Asked before each entry and each piece of a file: once it says yes, the copy ends with
/// [`WorkspaceError::Stopped`](crate::WorkspaceError::Stopped).
#[derive(Clone, Copy)]
pub struct StopCheck<'a>(pub &'a dyn Fn() -> bool);

impl StopCheck<'static> {
    /// A copy that is wanted to its end.
    pub fn never() -> Self {
        Self(&|| false)
    }
}

impl StopCheck<'_> {
    pub(crate) fn check(self) -> Result<(), WorkspaceFault> {
        if (self.0)() { Err(WorkspaceFault::Stopped) } else { Ok(()) }
    }
}

impl fmt::Debug for StopCheck<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("StopCheck")
    }
}
