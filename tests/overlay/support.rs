//! A directory to try commands on, and what is in it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// The owner of the directories.
pub const OWNER: u32 = 31_001;
/// Longer than any call takes, seconds; `timeout` ends a call that takes longer.
const HANG_SECONDS: &str = "120";

/// Whether this process may create sandboxes with owners mapped.
pub fn is_privileged() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
    assert!(is_root || !required, "not root, and REQUIRE_PRIVILEGED=1");
    if !is_root {
        eprintln!("SKIP: not root");
    }
    is_root
}

/// A directory of [`OWNER`]'s in a place that everyone may enter.
pub struct TrialPlace {
    place: TempDir,
    pub dir: PathBuf,
}

impl TrialPlace {
    pub fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let dir = place.path().canonicalize().unwrap().join("dir");
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(OWNER), Some(OWNER)).unwrap();
        Self { place, dir }
    }

    /// With these files in the directory.
    pub fn with(files: &[(&str, &str)]) -> Self {
        let made = Self::new();
        files.iter().for_each(|(path, text)| made.write(path, text));
        made
    }

    /// A path beside the directory.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.place.path().canonicalize().unwrap().join(name)
    }

    /// Writes a file of the owner's, and the directories above it.
    pub fn write(&self, path: &str, text: &str) {
        let file = self.dir.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        for path in file.ancestors().take_while(|path| *path != self.dir) {
            chown(path, Some(OWNER), Some(OWNER)).unwrap();
        }
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.join(path)).unwrap()
    }

    pub fn has(&self, path: &str) -> bool {
        self.dir.join(path).symlink_metadata().is_ok()
    }

    /// `cofferdam exec --overlay` on the directory, with `options` split at spaces.
    pub fn command(&self, options: &str) -> Command {
        let mut command = exec();
        command.arg("--overlay").arg(&self.dir).args(options.split_whitespace());
        command
    }

    /// Runs a script for the sandbox's shell to its end.
    pub fn sh(&self, options: &str, script: &str) -> EndedTrial {
        EndedTrial::of(self.command(options).args(["--", "sh", "-c", script]))
    }

    /// Starts a script that prints `ready` and then reads a line.
    pub fn wait_in(&self, options: &str, script: &str) -> WaitingTrial {
        let script = format!("{script}\necho ready; read line");
        let mut command = self.command(options);
        command.args(["--", "sh", "-c", &script]);
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{:?}", child.wait_with_output());
        WaitingTrial { child }
    }
}

/// `cofferdam exec` that ends by itself.
pub fn exec() -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", HANG_SECONDS, env!("CARGO_BIN_EXE_cofferdam"), "exec"]);
    for name in ["SANDBOX_ROOTFS", "RUST_LOG"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// A command that waits for a line.
pub struct WaitingTrial {
    child: Child,
}

impl WaitingTrial {
    /// Lets it end.
    pub fn end(mut self) -> EndedTrial {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        EndedTrial { output: self.child.wait_with_output().unwrap() }
    }
}

/// A call that has ended.
pub struct EndedTrial {
    pub output: Output,
}

impl EndedTrial {
    pub fn of(command: &mut Command) -> Self {
        Self { output: command.output().unwrap() }
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.output.status.code(), Some(code), "{}\n{}", self.stdout(), self.stderr());
        self
    }

    /// Checks the lines of changes on stderr; other lines begin with `cofferdam: `.
    #[track_caller]
    pub fn changes(self, lines: &[&str]) -> Self {
        let stderr = self.stderr();
        let own: Vec<&str> =
            stderr.lines().filter(|line| !line.starts_with("cofferdam: ")).collect();
        assert_eq!(own, lines, "{stderr}");
        self
    }

    #[track_caller]
    pub fn says(self, words: &str) -> Self {
        let stderr = self.stderr();
        let found =
            stderr.lines().any(|line| line.starts_with("cofferdam: ") && line.contains(words));
        assert!(found, "{words:?} is not in\n{stderr}");
        self
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeNode {
    pub mode: u32,
    pub owner: (u32, u32),
    pub contents: Vec<u8>,
    /// Of files alone, seconds and nanoseconds.
    pub modified: Option<(i64, i64)>,
    /// The first path of the same file.
    pub first_name: Vec<u8>,
}

/// The tree below `root`, without times of directories.
pub fn tree(root: &Path) -> BTreeMap<Vec<u8>, TreeNode> {
    let mut names: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for path in paths(root) {
        let file = root.join(OsStr::from_bytes(&path));
        let metadata = file.symlink_metadata().unwrap();
        let kind = metadata.file_type();
        let contents = match () {
            () if kind.is_file() => fs::read(&file).unwrap(),
            () if kind.is_symlink() => {
                fs::read_link(&file).unwrap().as_os_str().as_bytes().to_vec()
            }
            () => Vec::new(),
        };
        let first_name = match kind.is_dir() {
            true => path.clone(),
            false => names.entry(metadata.ino()).or_insert_with(|| path.clone()).clone(),
        };
        let modified = kind.is_file().then(|| (metadata.mtime(), metadata.mtime_nsec()));
        let owner = (metadata.uid(), metadata.gid());
        found.insert(
            path,
            TreeNode { mode: metadata.mode(), owner, contents, modified, first_name },
        );
    }
    found
}

/// Everything that `stat` tells of the tree at `root`, itself included.
pub fn exact(root: &Path) -> BTreeMap<Vec<u8>, Vec<i64>> {
    let all = std::iter::once(Vec::new()).chain(paths(root));
    let stat = |path: Vec<u8>| {
        let file = root.join(OsStr::from_bytes(&path));
        let m = file.symlink_metadata().unwrap();
        let times = [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()];
        let others =
            [m.ino(), m.nlink(), m.size(), m.mode().into(), m.uid().into(), m.gid().into()];
        let others = others.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        (path, [&times[..], &others[..]].concat())
    };
    all.map(stat).collect()
}

/// The paths below `root`, sorted.
pub fn paths(root: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(root.join(&path)).unwrap() {
            let entry = entry.unwrap();
            let here = path.join(entry.file_name());
            found.push(here.as_os_str().as_bytes().to_vec());
            if entry.file_type().unwrap().is_dir() {
                pending.push(here);
            }
        }
    }
    found.sort();
    found
}
