//! A callback that stops a copy early.

use std::fmt;

use crate::error::WorkspaceFault;

/// Called before each entry and each piece of a file. When it returns true, the copy ends with
/// [`WorkspaceError::Stopped`](crate::WorkspaceError::Stopped).
#[derive(Clone, Copy)]
pub struct StopCheck<'a>(pub &'a dyn Fn() -> bool);

impl StopCheck<'static> {
    /// Never stops the copy.
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
