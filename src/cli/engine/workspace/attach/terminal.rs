//! The local terminal of an attached session.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use cofferdam_sandbox::engine::terminal_size;

/// A terminal in raw mode, which every key passes as it is. Dropping it restores the mode of before.
pub struct RawTerminal {
    terminal: OwnedFd,
    before: Termios,
}

impl RawTerminal {
    /// Puts stdin into raw mode; `None` if it is no terminal.
    pub fn begin() -> io::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        let terminal = stdin.as_fd().try_clone_to_owned()?;
        tcsetattr(&terminal, SetArg::TCSANOW, &raw)?;
        Ok(Some(Self { terminal, before }))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // If it fails, the terminal is gone.
        let _ = tcsetattr(&self.terminal, SetArg::TCSADRAIN, &self.before);
    }
}

/// The columns and rows of our terminal, if there is one.
pub fn local_size() -> Option<(u16, u16)> {
    let size = terminal_size(io::stdin()).or_else(|_| terminal_size(io::stdout()));
    size.ok().filter(|(cols, rows)| *cols > 0 && *rows > 0)
}
