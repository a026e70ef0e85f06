//! Calls about pipes and terminals.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use super::{done, owned};
use cofferdam_core::sync::run_control::TerminalSize;

/// `_IOW('T', 0x36, int)`.
const TIOCSIG: libc::Ioctl = 0x4004_5436;
/// `_IO('T', 0x41)`.
const TIOCGPTPEER: libc::Ioctl = 0x5441;
/// What a terminal takes for the end of input unless a program changes it.
const USUAL_EOF: u8 = 4;

/// The bytes that a pipe, of which `end` is either end, or a terminal holds for its reader.
pub fn unread_bytes(end: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the number is a live local of the type this request fills.
    done(unsafe { libc::ioctl(end.as_raw_fd(), libc::FIONREAD, &raw mut bytes) }.into())?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// Unlocks the terminal of `master` and opens it, without making it a controlling terminal.
pub fn open_terminal(master: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let unlocked: libc::c_int = 0;
    // SAFETY: the number is a live local of the type this request reads.
    done(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) }.into())?;
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: integers only; the result is a descriptor that nothing else owns.
    unsafe { owned(libc::ioctl(master.as_raw_fd(), TIOCGPTPEER, flags).into()) }
}

/// Sets the size of the terminal of `master`, and tells its foreground process group.
pub fn resize_terminal(master: BorrowedFd<'_>, size: TerminalSize) -> io::Result<()> {
    let TerminalSize { columns: ws_col, rows: ws_row } = size;
    let size = libc::winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the structure is a live local of the type this request reads.
    done(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }.into())
}

/// Sends SIGINT, SIGQUIT or SIGTSTP to the foreground process group of the terminal of `master`, as
/// their keys do; the kernel refuses others.
pub fn signal_terminal(master: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: integers only.
    done(unsafe { libc::ioctl(master.as_raw_fd(), TIOCSIG, signal) }.into())
}

/// The character that ends the input of the terminal of `master`.
pub fn eof_character(master: BorrowedFd<'_>) -> u8 {
    // SAFETY: all fields are integers, for which zero is valid.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is a live local of the type this call fills.
    let asked = unsafe { libc::tcgetattr(master.as_raw_fd(), &raw mut settings) };
    let set = settings.c_cc.get(libc::VEOF).copied().filter(|character| *character != 0);
    set.filter(|_| asked == 0).unwrap_or(USUAL_EOF)
}
