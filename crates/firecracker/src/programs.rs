//! Finds programs of the guest's root file system in a directory of the host with the same contents.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};

use cofferdam_core::SetupFailure;
use cofferdam_core::executor::{COMMAND_PATH, FoundProgram};
use cofferdam_core::values::digest::sha256_of_all;

/// The workspace, which exists only during a run.
const WORKSPACE: &str = "/workspace";
const STEP: &str = "find program";

/// The programs below one directory.
#[derive(Debug)]
pub struct GuestPrograms {
    root: PathBuf,
}

impl GuestPrograms {
    /// The programs below `root`.
    pub fn below(root: PathBuf) -> Self {
        Self { root }
    }

    /// As [`cofferdam_core::executor::Executor::find_program`].
    pub fn find(&self, name: &str) -> Result<Option<FoundProgram>, SetupFailure> {
        if Path::new(name).starts_with(WORKSPACE) {
            return Ok(None);
        }
        let root = File::open(&self.root).map_err(|error| SetupFailure::from_io(STEP, &error))?;
        if name.starts_with('/') {
            return self.open(root.as_fd(), name);
        }
        if name.is_empty() || name.contains('/') {
            return Ok(None);
        }
        for directory in COMMAND_PATH.split(':') {
            if let Some(found) = self.open(root.as_fd(), &format!("{directory}/{name}"))? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Opens the executable file at `path`, with links resolved as in the guest.
    fn open(&self, root: BorrowedFd<'_>, path: &str) -> Result<Option<FoundProgram>, SetupFailure> {
        let how = OpenHow::new()
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let file = match openat2(root, path, how) {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG) => {
                return Ok(None);
            }
            // A file that cannot be read exists, but cannot be verified.
            Err(errno) => return Err(SetupFailure::from_errno(STEP, errno as i32)),
        };
        let metadata = file.metadata().map_err(|error| SetupFailure::from_io(STEP, &error))?;
        if !metadata.is_file() || metadata.mode() & 0o111 == 0 {
            return Ok(None);
        }
        let file = OwnedFd::from(file);
        let target = self.place_of(file.as_fd())?;
        Ok(Some(FoundProgram { path: path.to_owned(), target, file }))
    }

    /// The path of `file` in the guest.
    fn place_of(&self, file: BorrowedFd<'_>) -> Result<String, SetupFailure> {
        let failed = |error: io::Error| SetupFailure::from_io(STEP, &error);
        let place = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(failed)?;
        let root = fs::canonicalize(&self.root).map_err(failed)?;
        let outside = || SetupFailure::from_words(STEP, "it is not in the guest's root");
        let below = place.strip_prefix(root).map_err(|_| outside())?;
        Ok(format!("/{}", below.to_str().ok_or_else(outside)?))
    }
}

/// The SHA-256 of a program.
pub fn identify(file: &OwnedFd) -> Result<String, SetupFailure> {
    let failed = |error: io::Error| SetupFailure::from_io("hash program", &error);
    digest_of(&File::from(file.try_clone().map_err(failed)?)).map_err(failed)
}

/// The SHA-256 of all of `file`. It ignores the offset, which is shared with other users of the file.
pub fn digest_of(file: &File) -> io::Result<String> {
    sha256_of_all(FromStart { file, at: 0 })
}

struct FromStart<'a> {
    file: &'a File,
    at: u64,
}

impl io::Read for FromStart<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let count = self.file.read_at(buffer, self.at)?;
        self.at += u64::try_from(count).unwrap_or(0);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use cofferdam_core::values::digest::sha256_of;

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("usr/bin")).unwrap();
        fs::create_dir_all(path("workspace")).unwrap();
        symlink("usr/bin", path("bin")).unwrap();
        for (name, mode) in
            [("usr/bin/tool-1.2", 0o755), ("usr/bin/data", 0o644), ("workspace/x", 0o755)]
        {
            fs::write(path(name), name).unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        // An absolute link and one out of the root, resolved as in a guest.
        symlink("/usr/bin/tool-1.2", path("usr/bin/tool")).unwrap();
        symlink("../../../../../../usr/bin/tool-1.2", path("usr/bin/up")).unwrap();
        symlink("/proc/self/exe", path("usr/bin/magic")).unwrap();
        root
    }

    #[test]
    fn a_program_is_found_where_the_guest_has_it_and_nowhere_else() {
        let root = root();
        let programs = GuestPrograms::below(root.path().to_owned());
        for (name, want) in [
            ("tool", Some(("/usr/bin/tool", "/usr/bin/tool-1.2"))),
            ("up", Some(("/usr/bin/up", "/usr/bin/tool-1.2"))),
            ("/bin/tool", Some(("/bin/tool", "/usr/bin/tool-1.2"))),
            ("/usr/bin/../bin/tool-1.2", Some(("/usr/bin/../bin/tool-1.2", "/usr/bin/tool-1.2"))),
            ("data", None),
            ("magic", None),
            ("/usr/bin", None),
            ("/workspace/x", None),
            ("workspace/x", None),
            ("./tool", None),
            ("", None),
            ("sh", None),
        ] {
            let found = programs.find(name).unwrap();
            let found = found.as_ref().map(|found| (&*found.path, &*found.target));
            assert_eq!(found, want, "{name}");
        }
    }

    #[test]
    fn a_program_is_hashed_from_its_first_byte_at_any_offset() {
        let root = root();
        let programs = GuestPrograms::below(root.path().to_owned());
        let found = programs.find("tool").unwrap().unwrap();
        // A previous reader has moved the offset to the end.
        let mut read = File::from(found.file.try_clone().unwrap());
        io::copy(&mut read, &mut io::sink()).unwrap();
        assert_eq!(identify(&found.file).unwrap(), sha256_of(b"usr/bin/tool-1.2"));
    }
}
