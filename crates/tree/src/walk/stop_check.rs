//! Whether a copy that is being made is still wanted.

use std::fmt;

use crate::error::Fault;

/// Asked before each entry and each piece of a file: once it says yes, the copy ends with
/// [`WorkspaceError::Stopped`](crate::WorkspaceError::Stopped).
#[derive(Clone, Copy)]
pub struct Until<'a>(pub &'a dyn Fn() -> bool);

impl Until<'static> {
    /// A copy that is wanted to its end.
    pub fn never() -> Self {
        Self(&|| false)
    }
}

impl Until<'_> {
    pub(crate) fn check(self) -> Result<(), Fault> {
        if (self.0)() { Err(Fault::Stopped) } else { Ok(()) }
    }
}

impl fmt::Debug for Until<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Until")
    }
}
