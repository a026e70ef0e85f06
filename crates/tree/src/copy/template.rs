//! Templates of workspaces: what they hold, and the cheaper way to fill a workspace from one.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

use crate::copy::fingerprint::{Fingerprint, FingerprintHasher};
use crate::error::{During, WorkspaceError, WorkspaceFault};
use crate::walk::budget::{TreeBudget, TreeLimits};
use crate::walk::{FileKind, TreeWalk, WalkEvent, as_path};
use cofferdam_core::values::owner::Owner;

/// The most files, and the most directories, for which a copy is cheaper than an overlay mount.
const COPY_ENTRIES_MAX: u64 = 20;
/// The most bytes for which a copy is cheaper.
const COPY_BYTES_MAX: u64 = 256 * 1024;

/// How a workspace is filled from a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// All files are copied.
    Copy,
    /// An overlay has the template read-only below the workspace's own file system.
    Overlay,
}

/// Who owns the entries of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    /// All entries have this owner.
    One(Owner),
    /// The entries have different owners.
    Several,
}

/// What a template held when it was scanned, without `.git`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Regular files and symbolic links.
    pub files: u64,
    /// Directories, without the template itself.
    pub directories: u64,
    /// Size of the regular files together, bytes.
    pub bytes: u64,
    /// The owners of the entries and of the template itself.
    pub owners: Owners,
    /// Changes when the tree does.
    pub fingerprint: Fingerprint,
}

impl Template {
    /// Scans the directory `path` within the default [`TreeLimits`].
    ///
    /// # Errors
    /// The first entry that could not be read, or the limit that was exceeded.
    pub fn scan(path: &Path) -> Result<Self, WorkspaceError> {
        Self::scan_within(path, &TreeLimits::default())
    }

    /// As [`Template::scan`], within other limits.
    ///
    /// # Errors
    /// As [`Template::scan`].
    pub fn scan_within(path: &Path, limits: &TreeLimits) -> Result<Self, WorkspaceError> {
        let (root, stat) = open_root(path).during("open").map_err(|fault| fault.at(path))?;
        let mut walk = TreeWalk::to_read(root.as_fd(), limits.entries_max)
            .during("list")
            .map_err(|fault| fault.at(path))?;
        let mut scan = Scan::new(&stat, limits);
        while let Some(event) = walk.advance()? {
            scan.take(&walk, &event)?;
        }
        Ok(scan.finish())
    }

    /// The cheaper way to fill a workspace: the time of a copy grows with the number of files, that
    /// of an overlay is constant.
    pub fn fill(&self) -> Fill {
        let small = self.files <= COPY_ENTRIES_MAX
            && self.directories <= COPY_ENTRIES_MAX
            && self.bytes <= COPY_BYTES_MAX;
        if small { Fill::Copy } else { Fill::Overlay }
    }
}

fn open_root(path: &Path) -> Result<(OwnedFd, FileStat), Errno> {
    let root = open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let stat = fstat(&root)?;
    Ok((root, stat))
}

/// A scan in progress.
struct Scan {
    template: Template,
    budget: TreeBudget,
    hasher: FingerprintHasher,
}

impl Scan {
    fn new(root: &FileStat, limits: &TreeLimits) -> Self {
        let template = Template {
            files: 0,
            directories: 0,
            bytes: 0,
            owners: Owners::One(Owner::of(root)),
            fingerprint: Fingerprint::default(),
        };
        let mut hasher = FingerprintHasher::default();
        hasher.entry(c"", root);
        Self { template, budget: TreeBudget::new(*limits), hasher }
    }

    fn finish(self) -> Template {
        Template { bytes: self.budget.bytes(), fingerprint: self.hasher.finish(), ..self.template }
    }

    fn take(&mut self, walk: &TreeWalk<'_>, event: &WalkEvent) -> Result<(), WorkspaceError> {
        match event {
            WalkEvent::Leave { .. } => {
                self.hasher.leave();
                Ok(())
            }
            WalkEvent::Enter { name, stat } => {
                self.hasher.entry(name, stat);
                self.directory(walk, stat).map_err(|fault| fault.at(walk.path()))
            }
            WalkEvent::Entry { name, kind } => self
                .entry(walk, name, *kind)
                .map_err(|fault| fault.at(walk.path().join(as_path(name)))),
            WalkEvent::Unopened { name, errno } => self
                .unopened(walk, *errno)
                .map_err(|fault| fault.at(walk.path().join(as_path(name)))),
        }
    }

    fn directory(&mut self, walk: &TreeWalk<'_>, stat: &FileStat) -> Result<(), WorkspaceFault> {
        self.budget.take_entry(walk.depth())?;
        self.template.directories += 1;
        self.note_owner(stat);
        Ok(())
    }

    fn entry(
        &mut self,
        walk: &TreeWalk<'_>,
        name: &CStr,
        kind: FileKind,
    ) -> Result<(), WorkspaceFault> {
        self.budget.take_entry(walk.depth())?;
        let stat = fstatat(walk.directory(), name, AtFlags::AT_SYMLINK_NOFOLLOW).during("stat")?;
        self.hasher.entry(name, &stat);
        match kind {
            FileKind::Special => {}
            FileKind::Symlink => self.template.files += 1,
            FileKind::Regular => {
                self.template.files += 1;
                self.budget.take_bytes(u64::try_from(stat.st_size).unwrap_or(0))?;
            }
        }
        self.note_owner(&stat);
        Ok(())
    }

    fn unopened(&mut self, walk: &TreeWalk<'_>, errno: Errno) -> Result<(), WorkspaceFault> {
        self.budget.take_entry(walk.depth())?;
        match errno {
            // A copy leaves mount points out.
            Errno::EXDEV => Ok(()),
            _ => Err(errno).during("open"),
        }
    }

    fn note_owner(&mut self, stat: &FileStat) {
        if self.template.owners != Owners::One(Owner::of(stat)) {
            self.template.owners = Owners::Several;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, chown, symlink};

    use nix::unistd::mkfifo;
    use tempfile::tempdir;

    use super::*;
    use crate::walk::budget::TreeLimit;

    #[test]
    fn a_scan_counts_what_a_copy_would_hold() {
        let place = tempdir().unwrap();
        fs::create_dir_all(place.path().join("check/.git/objects")).unwrap();
        fs::write(place.path().join("check/solution.py"), "12345").unwrap();
        fs::write(place.path().join("Makefile"), "123").unwrap();
        symlink("Makefile", place.path().join("link")).unwrap();
        mkfifo(&place.path().join("fifo"), Mode::S_IRWXU).unwrap();
        let template = Template::scan(place.path()).unwrap();
        assert_eq!((template.files, template.directories), (3, 1));
        assert_eq!(template.bytes, 8);
        assert_eq!(template.fill(), Fill::Copy);
        assert_eq!(Template::scan(place.path()).unwrap(), template);
    }

    #[test]
    fn one_foreign_owner_is_noticed() {
        let place = tempdir().unwrap();
        fs::write(place.path().join("a"), "").unwrap();
        let metadata = fs::metadata(place.path()).unwrap();
        let owner = Owner { uid: metadata.uid(), gid: metadata.gid() };
        assert_eq!(Template::scan(place.path()).unwrap().owners, Owners::One(owner));
        chown(place.path().join("a"), None, Some(12)).unwrap();
        assert_eq!(Template::scan(place.path()).unwrap().owners, Owners::Several);
    }

    #[test]
    fn small_templates_are_copied_and_others_overlaid() {
        let small = Template {
            files: 20,
            directories: 20,
            bytes: 256 * 1024,
            owners: Owners::Several,
            fingerprint: Fingerprint::default(),
        };
        let table = [
            (small.clone(), Fill::Copy),
            (Template { files: 21, ..small.clone() }, Fill::Overlay),
            (Template { directories: 21, ..small.clone() }, Fill::Overlay),
            (Template { bytes: 256 * 1024 + 1, ..small }, Fill::Overlay),
        ];
        for (template, fill) in table {
            assert_eq!(template.fill(), fill, "{template:?}");
        }
    }

    #[test]
    fn a_wide_directory_ends_at_the_limit() {
        let place = tempdir().unwrap();
        for number in 0..10 {
            fs::write(place.path().join(number.to_string()), "").unwrap();
        }
        let within = |entries_max| {
            let limits = TreeLimits { entries_max, ..TreeLimits::default() };
            Template::scan_within(place.path(), &limits).map(|template| template.files)
        };
        assert_eq!(within(10), Ok(10));
        let source = TreeLimit::Entries { max: 9 };
        let refused = within(9).unwrap_err();
        assert!(
            matches!(refused, WorkspaceError::TooLarge { source: found, .. } if found == source)
        );
    }

    #[test]
    fn a_template_that_is_not_a_directory_is_named() {
        let error = Template::scan(Path::new("/dev/null")).unwrap_err();
        assert_eq!(error.to_string(), r#"open "/dev/null": ENOTDIR: Not a directory"#);
    }
}
