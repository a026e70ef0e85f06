//! Opens paths that may lead through links, and stay below a directory.

use std::os::fd::{AsFd, OwnedFd};

use nix::NixPath;
use nix::errno::Errno;
use nix::fcntl::{OpenHow, openat2};

/// How often a disturbed lookup is tried.
const TRIES_MAX: usize = 100;

/// As `openat2` with a scope, where the path or a link may have `..`: the kernel gives such a lookup up when anything on
/// the host is renamed or mounted meanwhile, and it is tried again here.
///
/// # Errors
/// Those of `openat2`; `EAGAIN` if every try was disturbed.
pub fn open_scoped<P: NixPath + ?Sized>(
    directory: impl AsFd,
    path: &P,
    how: OpenHow,
) -> nix::Result<OwnedFd> {
    let mut tries = (0..TRIES_MAX).map(|_| openat2(directory.as_fd(), path, how));
    let done = tries.find(|opened| !matches!(opened, Err(Errno::EAGAIN | Errno::EINTR)));
    done.unwrap_or(Err(Errno::EAGAIN))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use nix::fcntl::{OFlag, ResolveFlag};

    use super::*;

    #[test]
    fn renames_elsewhere_do_not_hinder_a_path_with_dots() {
        let place = tempfile::tempdir().unwrap();
        let (one, two) = (place.path().join("one"), place.path().join("two"));
        fs::create_dir(place.path().join("top")).unwrap();
        fs::create_dir(&one).unwrap();
        let top = File::open(place.path().join("top")).unwrap();
        fs::create_dir(place.path().join("top/below")).unwrap();
        let path = ["below/.."; 50].join("/");
        let how = OpenHow::new().flags(OFlag::O_PATH).resolve(ResolveFlag::RESOLVE_BENEATH);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    fs::rename(&one, &two).unwrap();
                    fs::rename(&two, &one).unwrap();
                }
            });
            let opened: Result<Vec<_>, _> =
                (0..2000).map(|_| open_scoped(&top, path.as_str(), how).map(drop)).collect();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(opened.map(|all| all.len()), Ok(2000));
        });
    }
}
