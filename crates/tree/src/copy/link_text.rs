//! The text of a symbolic link, and where it leads.

use std::ffi::{CStr, OsString};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{FileStat, fstatat};

/// The status and the text of the link `name`.
///
/// # Errors
/// `EINVAL` if it is no link. A program can exchange the entry at any moment.
pub(crate) fn read_link(
    directory: BorrowedFd<'_>,
    name: &CStr,
) -> Result<(FileStat, OsString), Errno> {
    let stat = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok((stat, readlinkat(directory, name)?))
}

/// Whether a link with this text, in a directory `depth` levels below the top of the copy, cannot
/// lead out of the copy, whatever other links the copy has.
///
/// It may go up only at its start, where the directories above it are those of the copy: in
/// `other/..`, a link `other` decides where `..` leads. Since this holds for every link that is kept,
/// a path through several links stays inside too.
pub(crate) fn stays_inside(text: &[u8], depth: usize) -> bool {
    if text.starts_with(b"/") {
        return false;
    }
    let mut parts = text.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let mut levels = 0;
    let up = |part: &&[u8]| *part == b"..";
    while let Some(part) = parts.next() {
        if !up(&part) {
            return levels <= depth && !parts.any(|part| up(&part));
        }
        levels += 1;
    }
    levels <= depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_kept_only_if_it_cannot_lead_out() {
        for (text, depth, inside) in [
            ("a", 0, true),
            ("a/b", 0, true),
            (".", 0, true),
            ("./a", 0, true),
            ("..", 0, false),
            ("..", 1, true),
            ("../..", 1, false),
            ("../../a", 2, true),
            ("../../../a", 2, false),
            ("./.././/../a", 2, true),
            ("/", 5, false),
            ("/etc/passwd", 5, false),
            ("/workspace/a", 0, false),
            // Inside by its text, but it leads out if `a` is a link to `.`.
            ("a/..", 0, false),
            ("a/../b", 3, false),
            ("../a/..", 3, false),
            ("..a", 0, true),
        ] {
            assert_eq!(stays_inside(text.as_bytes(), depth), inside, "{text} at {depth}");
        }
    }
}
