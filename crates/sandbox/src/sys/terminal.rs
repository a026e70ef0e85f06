//! Terminals.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The columns and rows of a terminal.
///
/// # Errors
/// The descriptor is no terminal.
pub fn terminal_size(terminal: impl AsFd) -> io::Result<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    let fd = terminal.as_fd().as_raw_fd();
    // SAFETY: the structure is a live local of the type this request fills.
    super::done(unsafe { libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) }.into())?;
    Ok((size.ws_col, size.ws_row))
}
