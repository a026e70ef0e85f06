//! Repositories, and a web server for them on the loopback.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// The server, which ends with this value.
#[derive(Debug)]
pub struct GitServer {
    process: Child,
    directory: TempDir,
    port: u16,
}

impl GitServer {
    /// Starts it without any repository.
    pub fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let mut process = Command::new("python3")
            .args(["-c", include_str!("git_server.py")])
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { process, directory, port: line.trim().parse().unwrap() }
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The URL of the repository `name`.
    pub fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }

    /// Where the repository `name` lies, with its files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A new repository with a first commit.
    pub fn repository(&self, name: &str) -> TestRepository {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        let repository = TestRepository { path };
        repository.git(&["init", "-q", "--initial-branch=main"]);
        repository.commit("README", "first\n");
        repository
    }

    /// The repository `name`, which is there.
    pub fn repository_at(&self, name: &str) -> TestRepository {
        TestRepository { path: self.path(name) }
    }

    /// How many requests there were for packs.
    pub fn packs_sent(&self) -> usize {
        let requests = self.requests();
        requests.iter().filter(|line| line.starts_with("POST ")).count()
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<String> {
        let log = fs::read_to_string(self.directory.path().join("requests.log"));
        log.unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A repository with a work tree.
#[derive(Debug)]
pub struct TestRepository {
    path: PathBuf,
}

impl TestRepository {
    /// Its work tree.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs git in it, and returns what it printed.
    #[track_caller]
    pub fn git(&self, args: &[&str]) -> String {
        let done = self.command(args).output().unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
            .args(["-c", "protocol.file.allow=always", "-c", "commit.gpgSign=false"])
            .args(args)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(&self.path);
        command
    }

    /// Runs git with `input`, and returns what it printed.
    #[track_caller]
    pub fn git_with(&self, args: &[&str], input: &[u8]) -> String {
        use std::io::Write;
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{args:?}");
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }

    /// Commits one file; returns the hash.
    #[track_caller]
    pub fn commit(&self, file: &str, text: &str) -> String {
        let path = self.path.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self.git(&["add", "-f", "--", file]);
        self.git(&["commit", "-q", "-m", file]);
        self.git(&["rev-parse", "HEAD"])
    }
}
