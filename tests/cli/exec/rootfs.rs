//! `exec --rootfs` on a directory whose owner tries to make root write elsewhere on the host.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use tempfile::TempDir;

use crate::support::{Done, cofferdam};

/// Without protection, a swap hits about one call in ten.
const RACED_CALLS: usize = 60;

/// A root with a shell, and a host directory outside it.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().unwrap());
        let everybody = Permissions::from_mode(0o755);
        fs::set_permissions(root.0.path(), everybody).unwrap();
        for directory in [root.path(""), root.outside()] {
            fs::create_dir(directory).unwrap();
        }
        let output = Command::new("ldd").arg("/bin/sh").output().unwrap();
        let words = String::from_utf8(output.stdout).unwrap();
        let libraries = words.split_whitespace().filter(|word| word.starts_with('/'));
        for file in libraries.chain(["/bin/sh"]) {
            fs::create_dir_all(root.path(file).parent().unwrap()).unwrap();
            fs::copy(file, root.path(file)).unwrap();
        }
        root
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.0.path().join("root").join(inside.trim_start_matches('/'))
    }

    fn outside(&self) -> PathBuf {
        self.0.path().join("outside")
    }

    fn sh(&self, script: &str) -> Done {
        let call = cofferdam("exec --rootfs").arg(self.path("")).words("-- /bin/sh -c");
        call.arg(script).run()
    }
}

/// The names that the sandbox itself uses in a root, as links out of it.
#[test]
fn a_link_at_a_name_of_the_sandbox_is_not_followed() {
    for name in [".overlay", ".var-tmp", ".hosts", ".empty", ".program", "dev", "tmp", "run"] {
        let root = Root::new();
        symlink(root.outside(), root.path(name)).unwrap();
        root.sh("echo ran").exits(0).prints("ran\n");
        let made: Vec<_> = fs::read_dir(root.outside()).unwrap().collect();
        assert!(made.is_empty(), "{name}: {made:?}");
    }
}

#[test]
fn a_link_in_place_of_a_mask_does_not_unmask_a_path() {
    let root = Root::new();
    symlink("/proc/irq", root.path(".empty")).unwrap();
    assert!(fs::read_dir("/proc/irq").unwrap().next().is_some(), "nothing to mask");
    root.sh("echo /proc/irq/*").exits(0).prints("/proc/irq/*\n");
}

#[test]
fn a_directory_swapped_for_a_link_never_shows_the_host() {
    let root = Root::new();
    fs::write(root.outside().join("file"), "secret\n").unwrap();
    let (directory, link) = (root.path("data"), root.path("link"));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("file"), "open\n").unwrap();
    symlink(root.outside(), &link).unwrap();
    let done = AtomicBool::new(false);
    let outputs: Vec<String> = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                exchange(&directory, &link);
            }
        });
        let read = |_| root.sh("read line </data/file; echo $line").stdout();
        let outputs = (0..RACED_CALLS).map(read).collect();
        done.store(true, Ordering::Relaxed);
        outputs
    });
    assert!(outputs.iter().any(|output| output.contains("open")), "never shown: {outputs:?}");
    let shown = outputs.iter().filter(|output| output.contains("secret")).count();
    assert_eq!(shown, 0, "the host's directory was shown");
}

fn exchange(one: &Path, other: &Path) {
    renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE).unwrap();
}
