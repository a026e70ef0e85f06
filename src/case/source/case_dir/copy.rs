//! Copies what is shown of a Case's directory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::symlinkat;

use super::error::{CaseDirError, CaseDirLimits};
use super::listing::{CaseListing, FileIdentity, ListedEntry, ListedKind, open_inside};
use super::shown::shown_paths;
use cofferdam_tree::{StopCheck, digest_tree};

/// Everyone in a Cell may read the copy, which is read-only there.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
const EXECUTABLE_MODE: u32 = 0o755;
const BUFFER_BYTES: usize = 64 << 10;

/// A copy in progress.
struct CaseDirCopy<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    bytes_left: u64,
    limits: CaseDirLimits,
    stop: StopCheck<'a>,
}

/// Copies the directory `case_dir` to the empty directory `target` without the names `hidden`, see
/// [`hidden_names`](super::hidden_names), and without what no copy of a source has. The directories `without` and `target`
/// itself are left out wherever they are. Returns the digest of the copy.
///
/// # Errors
/// The first file that cannot be copied, or the limit that was exceeded. `target` then holds a part.
pub fn copy_case_dir(
    case_dir: &Path,
    target: BorrowedFd<'_>,
    hidden: &BTreeSet<PathBuf>,
    (without, limits): (&[PathBuf], CaseDirLimits),
    stop: StopCheck<'_>,
) -> Result<String, CaseDirError> {
    let root = File::open(case_dir).map_err(|error| CaseDirError::of(case_dir, error))?;
    let without = identities(without, target).map_err(|error| CaseDirError::of(case_dir, error))?;
    let listing = CaseListing::read(root.as_fd(), &without, &limits, stop)?;
    let bytes_left = limits.bytes_max;
    let mut copy = CaseDirCopy { from: root.as_fd(), to: target, bytes_left, limits, stop };
    for path in shown_paths(&listing, hidden) {
        let Some(entry) = listing.get(path) else { continue };
        copy.entry(path, entry)?;
    }
    set_mode(target, DIRECTORY_MODE).map_err(|error| CaseDirError::of(Path::new("."), error))?;
    let digest = digest_tree(target, None, stop);
    digest.map(|tree| tree.hex()).map_err(|_| CaseDirError::Stopped)
}

/// The directories that are not listed. One that is missing is none.
fn identities(without: &[PathBuf], target: BorrowedFd<'_>) -> io::Result<Vec<FileIdentity>> {
    let mut found = vec![FileIdentity::of(&fstat(target)?)];
    for path in without {
        if let Ok(directory) = File::open(path) {
            found.push(FileIdentity::of(&fstat(&directory)?));
        }
    }
    Ok(found)
}

impl CaseDirCopy<'_> {
    fn entry(&mut self, path: &Path, entry: &ListedEntry) -> Result<(), CaseDirError> {
        if self.stop.is_set() {
            return Err(CaseDirError::Stopped);
        }
        let failed = |errno: Errno| CaseDirError::of(path, errno);
        match &entry.kind {
            ListedKind::Directory => mkdirat(self.to, path, Mode::S_IRWXU)
                .and_then(|()| open_inside(self.to, path, OFlag::O_DIRECTORY))
                .and_then(|made| set_mode(made.as_fd(), DIRECTORY_MODE))
                .map_err(failed),
            ListedKind::Link { target } => {
                symlinkat(target.as_path(), self.to, path).map_err(failed)
            }
            ListedKind::File { is_executable } => {
                let mode = if *is_executable { EXECUTABLE_MODE } else { FILE_MODE };
                self.file(path, entry.identity, mode)
            }
        }
    }

    /// Copies a file, unless another has its name by now.
    fn file(&mut self, path: &Path, identity: FileIdentity, mode: u32) -> Result<(), CaseDirError> {
        let failed = |errno: Errno| CaseDirError::of(path, errno);
        let from = match open_inside(self.from, path, OFlag::empty()) {
            Ok(from) => from,
            Err(Errno::ENOENT | Errno::ELOOP) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        };
        if FileIdentity::of(&fstat(&from).map_err(failed)?) != identity {
            return Ok(());
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let to = openat(self.to, path, flags | OFlag::O_CLOEXEC, Mode::S_IRUSR | Mode::S_IWUSR);
        let to = to.map_err(failed)?;
        set_mode(to.as_fd(), mode).map_err(failed)?;
        self.contents(path, &mut File::from(from), &mut File::from(to))
    }

    fn contents(
        &mut self,
        path: &Path,
        from: &mut File,
        to: &mut File,
    ) -> Result<(), CaseDirError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            if self.stop.is_set() {
                return Err(CaseDirError::Stopped);
            }
            let count = from.read(&mut buffer).map_err(|error| CaseDirError::of(path, error))?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                return Ok(());
            };
            let CaseDirLimits { bytes_max, .. } = self.limits;
            let left = self.bytes_left.checked_sub(bytes.len() as u64);
            self.bytes_left = left.ok_or(CaseDirError::TooLarge { bytes_max })?;
            to.write_all(bytes).map_err(|error| CaseDirError::of(path, error))?;
        }
    }
}

fn set_mode(file: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    fchmod(file, Mode::from_bits_truncate(mode))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Everything below `directory`, with the contents of files and the texts of links.
    fn contents(directory: &Path) -> Vec<String> {
        let (mut pending, mut found) = (vec![directory.to_owned()], Vec::new());
        while let Some(path) = pending.pop() {
            for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
                let name = entry.strip_prefix(directory).unwrap().display().to_string();
                let metadata = entry.symlink_metadata().unwrap();
                let mode = metadata.permissions().mode() & 0o7777;
                found.push(if metadata.is_symlink() {
                    format!("{name} -> {}", fs::read_link(&entry).unwrap().display())
                } else if metadata.is_dir() {
                    pending.push(entry);
                    format!("{name}/ {mode:o}")
                } else {
                    format!("{name} {mode:o} {}", fs::read_to_string(&entry).unwrap())
                });
            }
        }
        found.sort();
        found
    }

    #[test]
    fn a_copy_has_what_is_shown_and_no_name_of_a_hidden_file() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["t", "d/e", ".git", "d/__pycache__", "store/r", "seen"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["case.yaml", "t/h.py", "d/e/a", ".git/x", "d/__pycache__/h.pyc", "store/r/x"] {
            fs::write(at(name), name).unwrap();
        }
        fs::set_permissions(at("d/e/a"), fs::Permissions::from_mode(0o4700)).unwrap();
        fs::hard_link(at("t/h.py"), at("d/alias")).unwrap();
        symlink("t/h.py", at("to_hidden")).unwrap();
        symlink("/etc/passwd", at("out")).unwrap();
        symlink("d/e", at("to_e")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        let hidden = ["case.yaml", "t/h.py"].iter().map(PathBuf::from).collect();
        let target = File::open(at("seen")).unwrap();
        let limits = CaseDirLimits::default();
        let copied = |without: &[PathBuf], limits| {
            let never = StopCheck::never();
            copy_case_dir(place.path(), target.as_fd(), &hidden, (without, limits), never)
        };
        let digest = copied(&[at("store"), at("none")], limits).unwrap();
        let wanted = [
            "d/ 755",
            "d/e/ 755",
            "d/e/a 755 d/e/a",
            "t/ 755",
            "to_e -> d/e",
            "to_hidden -> t/h.py",
        ];
        assert_eq!(contents(&at("seen")), wanted);
        assert!(fs::read(at("seen/to_hidden")).is_err(), "the link dangles");
        assert_eq!(digest.len(), 64);
    }

    #[test]
    fn a_directory_beyond_a_limit_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let (from, to) = (place.path().join("from"), place.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("a"), "12345").unwrap();
        fs::write(from.join("b"), "12345").unwrap();
        let limits = CaseDirLimits::default();
        let copied = |limits: CaseDirLimits, is_over: bool| {
            let _ = fs::remove_dir_all(&to);
            fs::create_dir(&to).unwrap();
            let target = File::open(&to).unwrap();
            let stop = || is_over;
            let hidden = BTreeSet::new();
            copy_case_dir(&from, target.as_fd(), &hidden, (&[], limits), StopCheck(&stop))
        };
        copied(CaseDirLimits { entries_max: 2, bytes_max: 10 }, false).unwrap();
        let error = copied(CaseDirLimits { entries_max: 1, ..limits }, false).unwrap_err();
        assert_eq!(error.to_string(), "the directory of the Case has more than 1 entries");
        let error = copied(CaseDirLimits { bytes_max: 9, ..limits }, false).unwrap_err();
        assert_eq!(error.to_string(), "the directory of the Case has more than 9 bytes");
        assert!(matches!(copied(limits, true), Err(CaseDirError::Stopped)));
    }
}
