//! Runs the built binary with a time limit; a failed check shows the call and its output.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The time limit of a call, longer than any call should take, seconds.
const HANG_SECONDS: u64 = 30;
/// How much stdout a failure shows, characters.
const SHOWN_CHARS_MAX: usize = 2_000;

/// A call of the binary, under construction.
pub struct Call {
    command: Command,
    stdin: Vec<u8>,
}

/// A completed call.
pub struct Done {
    line: String,
    pub output: Output,
}

/// `cofferdam` with `arguments` split at spaces.
pub fn cofferdam(arguments: &str) -> Call {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    command.args(arguments.split_whitespace());
    for name in ["RUN_WORKSPACE", "LANGS_DIR", "SANDBOX_ROOTFS", "RUST_LOG", "PORT"] {
        command.env_remove(name);
    }
    Call { command, stdin: Vec::new() }
}

/// The same, called by a shell after `ulimit` with `options`.
pub fn limited(options: &str, arguments: &str) -> Call {
    let Call { command: own, stdin } = cofferdam(arguments);
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("ulimit {options}; exec \"$@\"")).arg("bash");
    command.arg(own.get_program()).args(own.get_args());
    Call { command, stdin }
}

/// `cofferdam exec` with `options` split at spaces, and a script for the sandbox's shell.
pub fn exec_sh(options: &str, script: &str) -> Call {
    cofferdam("exec").words(options).words("-- sh -c").arg(script)
}

impl Call {
    pub fn arg(mut self, word: impl AsRef<std::ffi::OsStr>) -> Self {
        self.command.arg(word);
        self
    }

    pub fn words(mut self, words: &str) -> Self {
        self.command.args(words.split_whitespace());
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn within(mut self, directory: &Path) -> Self {
        self.command.current_dir(directory);
        self
    }

    pub fn fed(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Starts it with a pipe for each stream.
    pub fn spawn(mut self) -> Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.spawn().expect("the binary starts")
    }

    /// Runs it and waits for its end.
    pub fn run(mut self) -> Done {
        let (line, stdin) = (format!("{:?}", self.command), std::mem::take(&mut self.stdin));
        let mut child = self.spawn();
        let pid = pid_of(&child);
        let mut input = child.stdin.take().expect("stdin is a pipe");
        // The program may end without reading all its input.
        thread::spawn(move || input.write_all(&stdin));
        let (sender, done) = channel();
        thread::spawn(move || sender.send(child.wait_with_output()));
        match done.recv_timeout(Duration::from_secs(HANG_SECONDS)) {
            Ok(output) => Done { line, output: output.expect("waiting works") },
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                let _ = kill(pid, Signal::SIGKILL);
                panic!("{line} did not end within {HANG_SECONDS} s");
            }
        }
    }
}

impl Done {
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        self.holds(self.output.status.code() == Some(code), &format!("exit code {code}"));
        self
    }

    #[track_caller]
    pub fn prints(self, stdout: &str) -> Self {
        self.holds(self.stdout() == stdout, &format!("stdout {stdout:?}"));
        self
    }

    /// Checks that stderr is one line in lower case that contains `words`.
    #[track_caller]
    pub fn complains(self, words: &str) -> Self {
        let stderr = self.stderr();
        let first = stderr.strip_prefix("cofferdam: ").and_then(|own| own.split([':', ' ']).next());
        let one_line = stderr.ends_with('\n') && stderr.lines().count() == 1;
        // A name in capitals is a variable or FILE.
        let lower_case = first.is_some_and(|word| {
            word.starts_with(|c: char| !c.is_uppercase()) || word == word.to_uppercase()
        });
        self.holds(
            one_line && lower_case && stderr.contains(words),
            &format!("one line with {words:?}"),
        );
        self
    }

    #[track_caller]
    pub fn quietly(self) -> Self {
        self.holds(self.output.stderr.is_empty(), "an empty stderr");
        self
    }

    #[track_caller]
    pub fn holds(&self, held: bool, wanted: &str) {
        assert!(
            held,
            "wanted {wanted}\n{}\n{}\n-- stdout\n{}\n-- stderr\n{}",
            self.line,
            self.output.status,
            self.stdout().chars().take(SHOWN_CHARS_MAX).collect::<String>(),
            self.stderr(),
        );
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

pub fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a pid fits"))
}

/// Waits for `child` to end; panics after `limit`.
#[track_caller]
pub fn ends_within(child: &mut Child, limit: Duration) -> ExitStatus {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("waiting works") {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("still running after {limit:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process on this host has `word` as an argument.
pub fn is_running(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc is readable");
    processes.flatten().any(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).split('\0').any(|argument| argument == word)
    })
}

/// Waits until [`is_running`]; panics if `child` ends first.
#[track_caller]
pub fn until_running(word: &str, child: &mut Child) {
    while !is_running(word) {
        assert!(child.try_wait().expect("waiting works").is_none(), "the child ended early");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The workspaces of this repository.
pub fn langs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("langs")
}

/// Checks that `json` has these keys in this order.
#[track_caller]
pub fn has_keys_in_order(json: &str, keys: &[&str]) {
    let mut from = 0;
    for key in keys {
        let quoted = format!("\"{key}\":");
        let at = json.get(from..).and_then(|rest| rest.find(&quoted));
        from += at.unwrap_or_else(|| panic!("{key} is not after the keys before it in {json}"));
    }
}

/// A user without privileges.
pub const NOBODY: u32 = 31_001;

/// Runs a command as that user, who has no capabilities and cannot gain any.
pub fn setpriv(groups: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &NOBODY.to_string(), "--regid", &NOBODY.to_string()]);
    command.args([groups, "--bounding-set=-all", "--inh-caps=-all"]);
    command
}

/// Whether the host lets that user create user namespaces. Prints a message if not.
pub fn has_user_namespaces() -> bool {
    let tried = setpriv("--clear-groups").args(["unshare", "--user", "true"]).output().unwrap();
    if !tried.status.success() {
        let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
        assert!(!required, "no unprivileged user namespaces, and REQUIRE_PRIVILEGED=1");
        eprintln!("SKIP: no unprivileged user namespaces");
    }
    tried.status.success()
}
