//! Makes links in a workspace.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{UnlinkatFlags, fchownat, symlinkat, unlinkat};

use super::copy::service_owner;
use super::private_dir::{Occupied, replace};
use crate::files::error::{FilesError, OnPath};
use crate::files::location::FileLocation;
use crate::files::resolve::{ParentDir, WorkspaceRoot};
use crate::files::write::with_temp_name;
use crate::status;
use crate::walk::open_beneath;

/// Makes a link with this text that takes the place of `parent`.
pub(crate) fn put_link(
    root: &WorkspaceRoot<'_>,
    parent: &ParentDir,
    text: &OsStr,
    occupied: Occupied,
) -> Result<(), FilesError> {
    let name = make_link(root, parent, text)?;
    replace(parent, &name, occupied).inspect_err(|_| unlink(parent, &name))
}

/// Makes a link with this text under a temporary name beside its place.
pub(super) fn make_link(
    root: &WorkspaceRoot<'_>,
    parent: &ParentDir,
    text: &OsStr,
) -> Result<String, FilesError> {
    parent.check_writable()?;
    let make = |name: &str| symlinkat(text, &parent.directory, name);
    let ((), name) = with_temp_name(make).on("symlink", &parent.path)?;
    let taken = take_link(root, parent.directory.as_fd(), &name).on("chown", &parent.path);
    taken.inspect_err(|_| unlink(parent, &name))?;
    Ok(name)
}

fn unlink(parent: &ParentDir, name: &str) {
    let _ = unlinkat(&parent.directory, name, UnlinkatFlags::NoRemoveDir);
}

/// Gives the link `name` to the owner, by its descriptor.
fn take_link(root: &WorkspaceRoot<'_>, parent: BorrowedFd<'_>, name: &str) -> Result<(), Errno> {
    let link = open_beneath::open_path(parent, name)?;
    let stat = fstat(&link)?;
    if status::file_type(&stat) != SFlag::S_IFLNK || stat.st_uid != service_owner().uid {
        // A program has replaced it.
        return Err(Errno::ESTALE);
    }
    let (uid, gid) = (Some(root.owner.uid()), Some(root.owner.gid()));
    fchownat(&link, c"", uid, gid, AtFlags::AT_EMPTY_PATH | AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// The text of a link at `at` that leads to `target`.
pub(super) fn link_text_to(
    root: &WorkspaceRoot<'_>,
    at: &FileLocation,
    target: &FileLocation,
) -> OsString {
    if at.area() != target.area() {
        return root.rule.path_inside(target).into_os_string();
    }
    let above: Vec<_> =
        at.parent().iter().flat_map(FileLocation::parts).map(ToOwned::to_owned).collect();
    let parts: Vec<_> = target.parts().collect();
    let common = above.iter().zip(&parts).take_while(|(one, other)| one == *other).count();
    let mut text = PathBuf::new();
    text.extend(above.iter().skip(common).map(|_| ".."));
    text.extend(parts.iter().skip(common));
    if text.as_os_str().as_bytes().is_empty() { OsString::from(".") } else { text.into_os_string() }
}
