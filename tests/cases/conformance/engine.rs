//! podman with a store of its own, and an image of busybox that is made without a network.

use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cofferdam_test_support::has;

/// The image of the tests.
pub const IMAGE: &str = "localhost/cofferdam-cases:test";
/// Its variables: those that commands have everywhere.
const VARIABLES: [&str; 4] = ["PATH=/bin", "HOME=/home", "TMPDIR=/tmp", "LANG=C.UTF-8"];
const DIRECTORIES: [(&str, u32); 7] = [
    ("bin", 0o755),
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("proc", 0o755),
    ("sys", 0o755),
    ("tmp", 0o1777),
];

/// podman of this machine. Dropped, nothing of it is left but the control groups that it never removes.
pub struct TestEngine {
    place: PathBuf,
}

/// The path of `program`, if it is installed.
pub fn found(program: &str) -> Option<PathBuf> {
    env::split_paths("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

impl TestEngine {
    /// podman over files in `place`. None where it, runc or busybox is not installed.
    pub fn new(place: &Path) -> Option<Self> {
        let (podman, busybox) = (found("podman"), found("busybox"));
        let is_there = podman.is_some() && busybox.is_some() && found("runc").is_some();
        if !has("podman, runc and busybox", is_there) {
            return None;
        }
        let engine = Self { place: place.to_owned() };
        fs::create_dir(engine.programs()).unwrap();
        let files = place.join("podman");
        // Without these options podman asks for more than a machine may give.
        let script = format!(
            "#!/bin/sh\nexec {} --root {1}/store --runroot {1}/run --cgroup-manager cgroupfs --runtime runc \"$@\"\n",
            podman?.display(),
            files.display(),
        );
        fs::write(engine.programs().join("podman"), script).unwrap();
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(engine.programs().join("podman"), executable).unwrap();
        engine.import(&busybox?);
        Some(engine)
    }

    /// The directory with the program `podman`.
    pub fn programs(&self) -> PathBuf {
        self.place.join("bin")
    }

    /// A `PATH` with this podman before all others.
    pub fn search_path(&self) -> String {
        format!("{}:{}", self.programs().display(), env::var("PATH").unwrap())
    }

    /// What podman answers.
    pub fn call(&self, words: &[&str]) -> Output {
        Command::new(self.programs().join("podman")).args(words).output().unwrap()
    }

    /// The ids of all containers and images but the tests' own.
    pub fn left(&self) -> String {
        let containers = self.call(&["ps", "--all", "--quiet", "--external"]).stdout;
        let images = self.call(&["images", "--all", "--format", "{{.Repository}}:{{.Tag}}"]).stdout;
        let text = String::from_utf8([containers, images].concat()).unwrap();
        text.lines().filter(|line| *line != IMAGE).collect::<Vec<_>>().join(" ")
    }

    fn import(&self, busybox: &Path) {
        let root = self.place.join("image");
        for (name, mode) in DIRECTORIES {
            fs::create_dir_all(root.join(name)).unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::copy(busybox, root.join("bin/busybox")).unwrap();
        let applets = Command::new(busybox).arg("--list").output().unwrap().stdout;
        for applet in String::from_utf8(applets).unwrap().lines() {
            if applet != "busybox" {
                symlink("busybox", root.join("bin").join(applet)).unwrap();
            }
        }
        let mut packed = Command::new("tar");
        packed.arg("-C").arg(&root).args(["-cf", "-", "."]).stdout(Stdio::piped());
        let mut packed = packed.spawn().unwrap();
        let mut import = Command::new(self.programs().join("podman"));
        import.args(["import", "--quiet"]);
        for variable in VARIABLES {
            import.arg("--change").arg(format!("ENV {variable}"));
        }
        let tar = packed.stdout.take().unwrap();
        let imported = import.args(["-", IMAGE]).stdin(tar).output().unwrap();
        packed.wait().unwrap();
        let complaint = String::from_utf8_lossy(&imported.stderr).into_owned();
        assert!(imported.status.success(), "{complaint}");
    }
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        self.call(&["rm", "--all", "--force", "--time", "0"]);
        // podman does not unmount all that it mounts.
        let overlay = self.place.join("podman/store/overlay");
        let mut unmount = Command::new("umount");
        let _ = unmount.args(["--recursive", "--quiet"]).arg(overlay).status();
    }
}
