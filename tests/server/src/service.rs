//! The binary as a process: starts it, talks to it, stops it, and prints its log if a test fails.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::client::{Answer, Client, post, request, solution};
use crate::workspace::Workspace;

/// How long a start or a stop may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long a line of the log may take to arrive.
const LOGGED_WITHIN: Duration = Duration::from_secs(10);

/// The absolute path of the binary under test: `COFFERDAM_BIN`, or the one that cargo built with the
/// test.
pub fn cofferdam() -> PathBuf {
    let binary =
        ["COFFERDAM_BIN", "CARGO_BIN_EXE_cofferdam"].into_iter().find_map(std::env::var_os);
    std::path::absolute(binary.expect("COFFERDAM_BIN is set where cargo does not run the test"))
        .unwrap()
}

/// The configuration of a server to start.
#[derive(Debug)]
pub struct Setup {
    workspaces: Vec<Workspace>,
    directory: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    redirections: String,
    /// Shell commands that run before it.
    before: String,
}

impl Setup {
    /// A server without options, started in `directory`. It inherits `STANDBY_MAX` unless the test
    /// sets it.
    pub fn inside(directory: &Path) -> Self {
        let args = ["serve", "--addr", "127.0.0.1:0"].map(OsString::from).to_vec();
        let passed = ["PATH", "STANDBY_MAX"];
        let env = passed.iter().filter_map(|name| Some((name.into(), std::env::var_os(name)?)));
        Self {
            workspaces: Vec::new(),
            directory: directory.to_owned(),
            args,
            env: env.collect(),
            redirections: String::new(),
            before: String::new(),
        }
    }

    /// Every slug runs in `workspace`.
    pub fn of(workspace: Workspace) -> Self {
        let directory = workspace.path().to_owned();
        let mut setup = Self::inside(&directory).arg("--workspace").arg(&directory);
        setup.workspaces.push(workspace);
        setup
    }

    /// Every slug runs the posted solution in a shell.
    pub fn shell() -> Self {
        Self::of(Workspace::shell())
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Removes `--addr`, so that the environment sets the address.
    pub fn without_addr(mut self) -> Self {
        self.args.drain(1..3);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Opens descriptors with these redirections, as a careless parent would leave them.
    pub fn with_open(mut self, redirections: &str) -> Self {
        redirections.clone_into(&mut self.redirections);
        self
    }

    /// Sets process limits with these options of `ulimit`.
    pub fn with_limits(mut self, options: &str) -> Self {
        self.before = format!("ulimit {options} && ");
        self
    }

    /// Unmounts the cgroups at `unified` for the server alone.
    pub fn without_cgroup(mut self, unified: &Path) -> Self {
        // What follows are the words of the program that is executed there.
        self.before =
            format!("exec unshare --mount sh -c 'umount {} && \"$@\"' sh ", unified.display());
        self
    }

    /// Has names resolved by the name servers of the file `resolv_conf`, for the server alone.
    pub fn with_name_servers(mut self, resolv_conf: &Path) -> Self {
        let mount = format!("mount --bind {} /etc/resolv.conf", resolv_conf.display());
        self.before = format!("exec unshare --mount sh -c '{mount} && \"$@\"' sh ");
        self
    }

    /// Starts the server and waits until it is ready.
    #[track_caller]
    pub fn start(self) -> Service {
        let (mut child, log) = self.spawn();
        let (sender, ready) = mpsc::channel();
        read_log(child.stderr.take().unwrap(), log.clone(), sender);
        let mut service =
            Service { child, address: ([0, 0, 0, 0], 0).into(), log, setup: self, ended: None };
        match ready.recv_timeout(PATIENCE) {
            Ok(address) => service.address = SocketAddr::from(([127, 0, 0, 1], address.port())),
            Err(error) => panic!("not ready: {error}"),
        }
        service.get("/health").assert_text(200, "ok\n");
        service
    }

    /// Starts the server, which must fail, and returns its exit code and log.
    #[track_caller]
    pub fn refused(self) -> (Option<i32>, String) {
        let (mut child, log) = self.spawn();
        let (sender, ready) = mpsc::channel();
        read_log(child.stderr.take().unwrap(), log.clone(), sender);
        if let Ok(address) = ready.recv_timeout(PATIENCE) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it listens on {address}: {}", log.text());
        }
        (child.wait().unwrap().code(), log.text())
    }

    fn spawn(&self) -> (Child, Log) {
        let binary = cofferdam();
        let script = format!("{}exec {} \"$@\"", self.before, self.redirections);
        let child = Command::new("/bin/sh")
            .args([OsStr::new("-c"), script.as_ref(), OsStr::new("sh"), binary.as_os_str()])
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        (child, Log::default())
    }
}

/// The log of the server so far. The server writes it in a thread of its own, so a line may come after the answer
/// that it is about.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<LogSoFar>>);

#[derive(Debug, Default)]
struct LogSoFar {
    text: String,
    is_over: bool,
}

impl Log {
    pub fn text(&self) -> String {
        self.lock().text.clone()
    }

    /// Waits until the log contains `part`, and returns the log.
    #[track_caller]
    pub fn wait_for(&self, part: &str) -> String {
        let deadline = Instant::now() + LOGGED_WITHIN;
        loop {
            let text = self.text();
            if text.contains(part) {
                return text;
            }
            assert!(Instant::now() < deadline, "{part:?} is not in the log: {text}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the last line is read. A process that the server left may hold its end open.
    fn wait_over(&self) {
        let deadline = Instant::now() + LOGGED_WITHIN;
        while !self.lock().is_over && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn push(&self, line: &str) {
        self.lock().text.push_str(line);
    }

    fn lock(&self) -> MutexGuard<'_, LogSoFar> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Collects the log and sends the address of the line that reports it.
fn read_log(stderr: ChildStderr, log: Log, ready: Sender<SocketAddr>) {
    thread::spawn(move || {
        let mut lines = BufReader::new(stderr);
        let mut line = String::new();
        let mut ready = Some(ready);
        while lines.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            log.push(&line);
            if let Some(address) = address_in(&line) {
                // The receiver may be gone, since it waits for one address only.
                let _ = ready.take().map(|ready| ready.send(address));
            }
            line.clear();
        }
        log.lock().is_over = true;
    });
}

/// The address in the line that reports that the server is ready.
fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, line) = line.split_once("listening on ")?;
    let words = line.split(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ':'));
    let mut addresses = words.filter_map(|word| word.trim_matches(['.', ':']).parse().ok());
    addresses.find(|address: &SocketAddr| address.port() != 0)
}

/// A running server. On drop it is stopped and must exit cleanly.
#[derive(Debug)]
pub struct Service {
    child: Child,
    pub address: SocketAddr,
    pub log: Log,
    setup: Setup,
    ended: Option<ExitStatus>,
}

impl Service {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// The workspace it was started with.
    pub fn workspace(&self) -> &Workspace {
        &self.setup.workspaces[0]
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Sends `bytes` on a new connection and reads the answer.
    pub fn ask(&self, bytes: impl AsRef<[u8]>) -> Answer {
        self.connect().ask(bytes)
    }

    pub fn get(&self, target: &str) -> Answer {
        self.ask(request("GET", target, ""))
    }

    /// Posts `body` to `/run`.
    pub fn post(&self, body: &Value) -> Answer {
        self.ask(post("", body.to_string()))
    }

    /// Runs a shell script.
    pub fn run(&self, script: &str) -> Answer {
        self.post(&solution(script))
    }

    /// Starts a run of `script` and returns its connection once the run has begun. The answer is a
    /// stream of events that ends with the connection.
    pub fn live(&self, script: &str) -> Client {
        let mut client = self.connect();
        let body = solution(&format!("echo began\n{script}")).to_string();
        client.send(post("accept: text/event-stream\r\nconnection: close\r\n", body));
        client.wait_for("began");
        client
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Waits until the server reports that it drains.
    #[track_caller]
    pub fn wait_draining(&self) {
        wait_until("draining", PATIENCE, || self.get("/health").status == 503);
    }

    /// Waits for the server to exit, and for the end of its log.
    #[track_caller]
    pub fn wait_end(&mut self, within: Duration) -> ExitStatus {
        if let Some(status) = self.ended {
            return status;
        }
        wait_until("the end of the server", within, || {
            self.ended = self.child.try_wait().unwrap();
            self.ended.is_some()
        });
        self.log.wait_over();
        self.ended.unwrap()
    }

    /// Stops the server and checks that it exits cleanly.
    #[track_caller]
    pub fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait_end(PATIENCE);
        assert_eq!(status.code(), Some(0), "{status}");
    }

    /// Kills the server, which cannot clean up.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.ended = Some(self.child.wait().unwrap());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if thread::panicking() {
            // The log explains the failure best.
            eprintln!("the log of the server:\n{}", self.log.text());
            if self.ended.is_none() {
                let _ = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
                let _ = kill(Pid::from_raw(self.pid()), Signal::SIGTERM);
                let deadline = Instant::now() + Duration::from_secs(10);
                while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
                    if Instant::now() > deadline {
                        let _ = self.child.kill();
                        let _ = self.child.wait();
                        return;
                    }
                    thread::sleep(Duration::from_millis(10));
                }
            }
        } else if self.ended.is_none() {
            self.stop();
        }
    }
}

/// Polls `condition` every few milliseconds until it holds.
#[track_caller]
pub fn wait_until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {within:?} for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Checks that one of three measurements is within `bound`, because the machine may be busy.
#[track_caller]
pub fn best_of_three(bound: Duration, mut measure: impl FnMut() -> Duration) {
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.push(measure());
        if taken.last().is_some_and(|took| *took <= bound) {
            return;
        }
    }
    panic!("none is within {bound:?}: {taken:?}");
}
