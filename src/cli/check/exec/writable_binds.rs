//! Host directories that tenants can write to: a link in them must not redirect our own paths.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{self, Component, Path};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;

use cofferdam_core::Bind;

/// The host directories that the sandbox may write to, by device and inode.
#[derive(Debug)]
pub struct WritableBinds(Vec<(u64, u64)>);

impl WritableBinds {
    /// The writable ones of `binds`. Device and inode identify a directory under any path.
    pub fn of(binds: &[Bind]) -> Self {
        let writable = binds.iter().filter(|bind| !bind.read_only);
        Self(writable.filter_map(|bind| identity(&bind.source)).collect())
    }

    /// Opens `path` if it is in one of these directories, without following any link: the owner of a
    /// link does not tell whether a tenant created it. A new file gets mode 0644.
    ///
    /// # Errors
    /// `ELOOP` for a link in or at the end of the path, and every other error of opening it.
    pub fn open_within(&self, path: &Path, flags: OFlag) -> io::Result<Option<OwnedFd>> {
        let path = path::absolute(path)?;
        let Some((directory, below)) = self.split(&path) else { return Ok(None) };
        let directory = File::open(directory)?;
        let creates = flags.contains(OFlag::O_CREAT);
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(if creates { Mode::from_bits_truncate(0o644) } else { Mode::empty() })
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        Ok(Some(openat2(directory, below, how)?))
    }

    /// Splits `path` into the outermost of these directories and the path below it.
    fn split<'path>(&self, path: &'path Path) -> Option<(&'path Path, &'path Path)> {
        let outwards = path.ancestors().skip(1).filter_map(|directory| {
            let below = path.strip_prefix(directory).ok()?;
            let within = below.components().next() != Some(Component::ParentDir);
            let known = identity(directory).is_some_and(|found| self.0.contains(&found));
            (within && known).then_some((directory, below))
        });
        outwards.last()
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::errno::Errno;

    use super::*;

    #[test]
    fn only_links_in_a_writable_bind_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let at = |path: &str| directory.path().join(path);
        for directory in ["out/dir", "in", "elsewhere"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("out/file"), "").unwrap();
        symlink(at("elsewhere"), at("out/link")).unwrap();
        symlink(at("elsewhere/absent"), at("out/dangling")).unwrap();
        symlink(at("out"), at("out/dir/back")).unwrap();
        symlink(at("elsewhere"), at("in/link")).unwrap();
        symlink(at("out"), at("way")).unwrap();
        let bind = |path: &str, read_only| Bind {
            source: at(path),
            target: Path::new("/x").to_owned(),
            read_only,
        };
        let binds = WritableBinds::of(&[bind("out", false), bind("in", true)]);
        let table = [
            ("out/file", Ok(true)),
            ("out/dir/absent", Err(Errno::ENOENT)),
            ("way/file", Ok(true)),
            ("out/dir/../file", Ok(true)),
            ("out/dangling", Err(Errno::ELOOP)),
            ("out/link", Err(Errno::ELOOP)),
            ("out/link/file", Err(Errno::ELOOP)),
            ("way/link/file", Err(Errno::ELOOP)),
            ("out/dir/back/file", Err(Errno::ELOOP)),
            ("out/dir/../link", Err(Errno::ELOOP)),
            ("out/dir/../../elsewhere", Err(Errno::EXDEV)),
            ("out/../elsewhere", Ok(false)),
            ("in/link", Ok(false)),
            ("elsewhere", Ok(false)),
            ("out", Ok(false)),
        ];
        for (path, expected) in table {
            let opened = binds.open_within(&at(path), OFlag::O_PATH);
            let found = opened.map(|file| file.is_some());
            let found = found.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap()));
            assert_eq!(found, expected, "{path}");
        }
        assert!(
            binds.open_within(&at("out/new"), OFlag::O_CREAT | OFlag::O_WRONLY).unwrap().is_some()
        );
        assert!(binds.open_within(&at("out/link/new"), OFlag::O_CREAT | OFlag::O_WRONLY).is_err());
        assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 0);
    }
}
