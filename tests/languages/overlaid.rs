//! An overlay over a root file system that keeps the changes of a test out of the lower one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_test_server::shipped::{self, repository};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

/// The root of the toolchains, or the host's, overlaid with files of a test.
#[derive(Debug)]
pub struct Overlaid {
    places: TempDir,
}

impl Overlaid {
    pub fn new() -> Self {
        let places = tempfile::tempdir().unwrap();
        let at = |name| places.path().join(name);
        for name in ["memory", "root"] {
            fs::create_dir(at(name)).unwrap();
        }
        let none = None::<&str>;
        mount(Some("tmpfs"), &at("memory"), Some("tmpfs"), MsFlags::empty(), none).unwrap();
        for name in ["memory/upper", "memory/work"] {
            fs::create_dir(at(name)).unwrap();
        }
        let below = shipped::rootfs().unwrap_or_else(|| PathBuf::from("/"));
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            below.display(),
            at("memory/upper").display(),
            at("memory/work").display()
        );
        mount(Some("overlay"), &at("root"), Some("overlay"), MsFlags::empty(), Some(&*layers))
            .unwrap();
        Self { places }
    }

    pub fn root(&self) -> PathBuf {
        self.places.path().join("root")
    }

    /// Copies the repository's `tree` to `place`, and links its file `program` into the PATH of
    /// sandboxes.
    pub fn install(&self, tree: &str, place: &str, program: &str) {
        let target = self.root().join(place);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let copied =
            Command::new("cp").arg("-r").arg(repository().join(tree)).arg(&target).status();
        assert!(copied.unwrap().success(), "{tree} to {place}");
        let link = self.root().join("usr/local/bin").join(program);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(Path::new("/").join(place).join(program), link).unwrap();
    }
}

impl Drop for Overlaid {
    fn drop(&mut self) {
        for name in ["root", "memory"] {
            // A sandbox of a failed test may still exist.
            let _ = umount2(&self.places.path().join(name), MntFlags::MNT_DETACH);
        }
    }
}
