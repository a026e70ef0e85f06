//! Writes files into the repository of an idle file system, whatever stands at their places.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{UnlinkatFlags, fchownat, symlinkat, unlinkat};

use super::changes::{ComparedTrees, TreeChanges};
use super::entry::{
    EntryForm, FileForm, ancestors, form_of, link_text, open_directory, open_file, split,
};
use super::withheld::Restored;
use cofferdam_core::SetupFailure;
use cofferdam_tree::{Owner, StopCheck, remove_tree_until};

const DIRECTORY_MODE: u32 = 0o755;

/// Writes into one repository, which no program uses meanwhile.
#[derive(Debug)]
pub struct TreeWriter<'a> {
    root: BorrowedFd<'a>,
    owner: Owner,
    stop: StopCheck<'a>,
}

impl<'a> TreeWriter<'a> {
    /// Writes beneath `root`, until `stop` ends it; what it makes belongs to `owner`.
    pub fn new(root: BorrowedFd<'a>, owner: Owner, stop: StopCheck<'a>) -> Self {
        Self { root, owner, stop }
    }

    /// Removes what is at `path`, if anything is.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(&self, path: &[u8]) -> Result<(), SetupFailure> {
        let (parent, name) = split(path);
        match open_directory(self.root, parent) {
            Ok(directory) => self.remove_entry(directory.as_fd(), name),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(()),
            Err(errno) => Err(SetupFailure::from_errno("open directory", errno as i32)),
        }
    }

    /// Writes a file that replaces whatever is at `path` or, unless that is a directory, above it.
    ///
    /// # Errors
    /// A step failed.
    pub fn write_file(
        &self,
        path: &[u8],
        mut contents: impl io::Read,
        is_executable: bool,
    ) -> Result<(), SetupFailure> {
        let directory = self.cleared(path)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        let name = OsStr::from_bytes(split(path).1);
        let opened = openat(&directory, name, flags | OFlag::O_NOFOLLOW, Mode::S_IRWXU);
        let mut file = File::from(opened.map_err(during("create file"))?);
        self.stop
            .copy(&mut contents, &mut file)
            .map_err(|error| SetupFailure::from_io("write file", &error))?;
        let mode = if is_executable { 0o755 } else { 0o644 };
        fchmod(&file, Mode::from_bits_truncate(mode)).map_err(during("set mode"))?;
        self.owner.take(&file).map_err(during("set owner"))
    }

    /// Makes a link that replaces whatever is at `path` or, unless that is a directory, above it.
    ///
    /// # Errors
    /// A step failed.
    pub fn write_link(&self, path: &[u8], text: &[u8]) -> Result<(), SetupFailure> {
        let directory = self.cleared(path)?;
        let name = OsStr::from_bytes(split(path).1);
        symlinkat(OsStr::from_bytes(text), &directory, name).map_err(during("make link"))?;
        self.take(directory.as_fd(), name)
    }

    /// The directory of `path`, in which nothing is called as the last name of `path`.
    fn cleared(&self, path: &[u8]) -> Result<OwnedFd, SetupFailure> {
        let (parent, name) = split(path);
        let mut directory = open_directory(self.root, b"").map_err(during("open directory"))?;
        for component in parent.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let found = form_of(directory.as_fd(), component).map_err(during("stat"))?;
            if found != Some(EntryForm::Directory) {
                self.remove_entry(directory.as_fd(), component)?;
                let component = OsStr::from_bytes(component);
                mkdirat(&directory, component, Mode::from_bits_truncate(DIRECTORY_MODE))
                    .map_err(during("make directory"))?;
                self.take(directory.as_fd(), component)?;
            }
            directory =
                open_directory(directory.as_fd(), component).map_err(during("open directory"))?;
        }
        self.remove_entry(directory.as_fd(), name)?;
        Ok(directory)
    }

    fn take(&self, directory: BorrowedFd<'_>, name: &OsStr) -> Result<(), SetupFailure> {
        let (uid, gid) = (Some(self.owner.uid()), Some(self.owner.gid()));
        fchownat(directory, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(during("set owner"))
    }

    fn remove_entry(&self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), SetupFailure> {
        self.stop.check_io().map_err(|error| SetupFailure::from_io("write files", &error))?;
        let name_os = OsStr::from_bytes(name);
        match form_of(directory, name).map_err(during("stat"))? {
            None => Ok(()),
            Some(EntryForm::Directory) => remove_tree_until(directory, name_os, self.stop)
                .map(drop)
                .map_err(|error| SetupFailure::from_words("remove directory", error.to_string())),
            Some(_) => {
                unlinkat(directory, name_os, UnlinkatFlags::NoRemoveDir).map_err(during("remove"))
            }
        }
    }
}

/// Makes the repository of `writer`, a copy of the base, what the agent left, but for `restored`.
///
/// # Errors
/// A file cannot be read or written, for example because there is no room.
pub fn apply_changes(
    writer: &TreeWriter<'_>,
    trees: &ComparedTrees,
    changes: &TreeChanges,
    restored: &Restored,
) -> Result<(), SetupFailure> {
    let applied = || changes.files.iter().filter(|(path, _)| !restored.paths.contains(*path));
    // First what goes, so that a directory can take the place of a file.
    for (path, _) in applied().filter(|(_, change)| change.after.is_none()) {
        writer.remove(path)?;
        remove_emptied(writer, path)?;
    }
    let written = applied().filter_map(|(path, change)| Some((path, change.after?)));
    for (path, form) in written {
        if let Some(merged) = restored.merged.get(path) {
            writer.write_file(path, merged.as_slice(), form == FileForm::Executable)?;
            continue;
        }
        let (parent, name) = split(path);
        let directory =
            open_directory(trees.left.as_fd(), parent).map_err(during("open directory"))?;
        if form == FileForm::Link {
            let text = link_text(directory.as_fd(), name).map_err(during("read link"))?;
            writer.write_link(path, &text)?;
        } else {
            let file = open_file(directory.as_fd(), name).map_err(during("open file"))?;
            writer.write_file(path, file, form == FileForm::Executable)?;
        }
    }
    Ok(())
}

/// Removes the directories above `path` that have become empty, as git does.
fn remove_emptied(writer: &TreeWriter<'_>, path: &[u8]) -> Result<(), SetupFailure> {
    for directory in ancestors(path) {
        let (parent, name) = split(directory);
        let Ok(parent) = open_directory(writer.root, parent) else { continue };
        match unlinkat(&parent, OsStr::from_bytes(name), UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::ENOTEMPTY | Errno::ENOTDIR) => return Ok(()),
            Err(errno) => return Err(SetupFailure::from_errno("remove directory", errno as i32)),
        }
    }
    Ok(())
}

fn during(step: &'static str) -> impl Fn(Errno) -> SetupFailure {
    move |errno| SetupFailure::from_errno(step, errno as i32)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::super::changes::FileChange;
    use super::*;

    #[test]
    fn what_is_written_ends_at_the_next_file_when_it_is_stopped() {
        let dirs = tempfile::tempdir().unwrap();
        let (base, left) = (dirs.path().join("base"), dirs.path().join("left"));
        let mut changes = TreeChanges::default();
        for (root, name) in [(&base, "gone"), (&left, "a"), (&left, "b"), (&left, "c")] {
            fs::create_dir_all(root).unwrap();
            fs::write(root.join(name), "x").unwrap();
            let form = |at| (root == at).then_some(FileForm::Plain);
            let change = FileChange { before: form(&base), after: form(&left) };
            changes.files.insert(name.as_bytes().to_vec(), change);
        }
        let open = |path| OwnedFd::from(File::open(path).unwrap());
        let trees = ComparedTrees { base: open(&base), left: open(&left), written: None };
        let root = open(&base);
        let owner =
            Owner { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() };
        let asked = Cell::new(0);
        let is_over = || {
            asked.set(asked.get() + 1);
            // One for the removal; two for each file.
            asked.get() > 3
        };
        let writer = TreeWriter::new(root.as_fd(), owner, StopCheck(&is_over));
        let stopped = apply_changes(&writer, &trees, &changes, &Restored::default());
        assert!(stopped.unwrap_err().to_string().contains("stopped"));
        assert_eq!(asked.get(), 4);
        let names: Vec<_> =
            fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["a"]);
    }
}
