//! Resolves what `make test` would run in a workspace, as a command for `sh -c`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::make_process::{self, MakeLimits, MakeOutput, MakeProcessError};

/// Where the workspace is inside the sandbox, for `$(CURDIR)`.
const WORKSPACE_IN_BOX: &str = "/workspace";
/// The longest command, in bytes: the kernel limits an argument to 128 KiB with its NUL.
const COMMAND_BYTES_MAX: usize = (128 << 10) - 1;
/// The longest line quoted from `make`, in characters.
const QUOTE_CHARS_MAX: usize = 300;
/// Variables by which an outer `make` or the operator's shell would change the output.
const MAKE_VARIABLES: [&str; 5] = ["MAKEFLAGS", "GNUMAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEFILES"];

/// Why a workspace has no command.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The directory is missing or cannot be read.
    #[error("no workspace at {}", .0.display())]
    NoWorkspace(PathBuf),
    /// No file has a name that `make` looks for.
    #[error("no Makefile in {}", .0.display())]
    NoMakefile(PathBuf),
    /// `make` is missing, too slow or prints too much.
    #[error(transparent)]
    Process(#[from] MakeProcessError),
    /// The Makefile has no such target.
    #[error("the Makefile has no target `{0}`")]
    NoTarget(&'static str),
    /// `make` failed, with its first line.
    #[error("make -n {0}: {1}")]
    Refused(&'static str, String),
    /// The target is up to date, or its recipe is empty.
    #[error("nothing to be done for `{0}`: it must be .PHONY and have a recipe")]
    NothingToDo(&'static str),
    /// The command is not UTF-8, or holds a NUL, which an argument cannot.
    #[error("the recipe of `{0}` is not text")]
    NotText(&'static str),
}

/// How `make` is run.
#[derive(Debug, Clone)]
pub struct Make {
    /// The program, looked up in PATH unless its name has a slash.
    pub program: PathBuf,
    /// Its limits. Its stdout is the command.
    pub limits: MakeLimits,
}

impl Default for Make {
    fn default() -> Self {
        let limits =
            MakeLimits { time_max: Duration::from_secs(10), stdout_bytes_max: COMMAND_BYTES_MAX };
        Self { program: PathBuf::from("make"), limits }
    }
}

impl Make {
    /// The command that `make` would run for `target` in `workspace`.
    pub fn resolve(&self, workspace: &Path, target: &'static str) -> Result<String, ResolveError> {
        let mut command = Command::new(&self.program);
        command.args(["-n", "--no-print-directory", target]);
        command.arg(format!("CURDIR={WORKSPACE_IN_BOX}")).current_dir(workspace);
        for name in MAKE_VARIABLES {
            command.env_remove(name);
        }
        // Its messages are parsed below.
        command.env("LC_ALL", "C");
        command_of(make_process::run(command, self.limits)?, target)
    }
}

/// Reads what `make -n` wrote for `target`.
pub(super) fn command_of(output: MakeOutput, target: &'static str) -> Result<String, ResolveError> {
    if !output.status.success() {
        return Err(refusal(&String::from_utf8_lossy(&output.stderr), target));
    }
    let text = String::from_utf8(output.stdout).map_err(|_| ResolveError::NotText(target))?;
    // `make` prints some messages on stdout too, such as "Nothing to be done" and the directories
    // it enters. A shell would fail with 127 on them.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    // Split at line feeds only: a carriage return belongs to the recipe.
    let recipe: Vec<&str> = text.split('\n').filter(|line| !line.starts_with("make: ")).collect();
    if recipe.iter().all(|line| line.trim().is_empty()) {
        return Err(ResolveError::NothingToDo(target));
    }
    let command = recipe.join("\n");
    if command.contains('\0') { Err(ResolveError::NotText(target)) } else { Ok(command) }
}

fn refusal(message: &str, target: &'static str) -> ResolveError {
    let first_line = message.lines().next().unwrap_or("it failed without a word").trim_end();
    // The message for a missing prerequisite is the same up to ", needed by".
    if first_line.contains(&format!("No rule to make target '{target}'. ")) {
        return ResolveError::NoTarget(target);
    }
    ResolveError::Refused(target, first_line.chars().take(QUOTE_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::os::fd::AsFd;
    use std::os::unix::fs::OpenOptionsExt;

    use nix::poll::{PollFd, PollFlags, poll};
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use tempfile::TempDir;

    use super::*;

    fn workspace(makefile: &str) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Makefile"), makefile).unwrap();
        dir
    }

    fn resolved(makefile: &str) -> Result<String, ResolveError> {
        Make::default().resolve(workspace(makefile).path(), "test")
    }

    fn message(makefile: &str) -> String {
        resolved(makefile).unwrap_err().to_string()
    }

    #[test]
    fn the_command_is_what_make_would_run() {
        let table = [
            ("test:\n\techo a\n", "echo a"),
            ("test:\n\t@echo a\n\t-false\n\t@-echo b\n", "echo a\nfalse\necho b"),
            ("X = one two\ntest:\n\techo $(X) $$HOME\n", "echo one two $HOME"),
            ("test: before\n\techo test\nbefore:\n\techo before\n", "echo before\necho test"),
            ("test:\n\tcd $(CURDIR)/check\n\tpwd\n", "cd /workspace/check\npwd"),
            ("test:\n\techo a \\\n\t  b\n", "echo a \\\n  b"),
            ("ifdef NOPE\ntest:\n\techo yes\nelse\ntest:\n\techo no\nendif\n", "echo no"),
            (".SILENT:\ntest:\n\techo quiet\n", "echo quiet"),
            ("MAKEFLAGS += -w\ntest:\n\techo a\n", "echo a"),
            ("test:\n\techo a\r\r\n\techo b\n", "echo a\r\necho b"),
            ("test:\n\techo 'é' \n\techo b\\ \n", "echo 'é' \necho b\\ "),
        ];
        for (makefile, command) in table {
            assert_eq!(resolved(makefile).unwrap(), command, "{makefile:?}");
        }
    }

    #[test]
    fn the_names_make_knows_all_serve() {
        for name in ["GNUmakefile", "makefile", "Makefile"] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(name), "test:\n\techo found\n").unwrap();
            assert_eq!(
                Make::default().resolve(dir.path(), "test").unwrap(),
                "echo found",
                "{name}"
            );
        }
    }

    #[test]
    fn nothing_to_run_is_never_a_command() {
        for makefile in [
            ".PHONY: test\ntest:\n",
            "test: ;\n",
            "X =\ntest:\n\t$(X)\n",
            "test: other\nother:\n",
            "MAKEFLAGS += -s\n.PHONY: test\ntest:\n",
            "MAKEFLAGS += -w\n.PHONY: test\ntest:\n",
        ] {
            let refused = resolved(makefile);
            assert!(
                matches!(refused, Err(ResolveError::NothingToDo(_))),
                "{makefile:?}: {refused:?}"
            );
        }
        let up_to_date = workspace("test:\n\techo never\n");
        fs::write(up_to_date.path().join("test"), "").unwrap();
        let refused = Make::default().resolve(up_to_date.path(), "test");
        assert!(matches!(refused, Err(ResolveError::NothingToDo(_))), "{refused:?}");
    }

    #[test]
    fn a_missing_target_and_a_missing_prerequisite_are_told_apart() {
        assert!(matches!(resolved("all:\n\techo\n"), Err(ResolveError::NoTarget(_))));
        assert!(matches!(resolved(""), Err(ResolveError::NoTarget(_))));
        assert!(message("test: gone\n\techo\n").contains("'gone', needed by 'test'"));
    }

    #[test]
    fn a_refusal_quotes_the_first_line_of_make() {
        assert_eq!(
            message("test:\n  spaces\n"),
            "make -n test: Makefile:2: *** missing separator.  Stop."
        );
        assert_eq!(
            message("include gone.mk\ntest:\n\techo\n"),
            "make -n test: Makefile:1: gone.mk: No such file or directory"
        );
        let long = message(&format!("$(error {})\n", "x".repeat(9_000)));
        assert_eq!(long.chars().count(), "make -n test: ".len() + QUOTE_CHARS_MAX);
    }

    #[test]
    fn make_missing_is_said_plainly() {
        let make = Make { program: "make-that-is-not-there".into(), ..Make::default() };
        let refused = make.resolve(workspace("test:\n\techo\n").path(), "test").unwrap_err();
        assert_eq!(refused.to_string(), "make is not installed");
    }

    #[test]
    fn a_make_that_hangs_is_killed_with_all_it_started() {
        let dir = workspace("test:\n\techo $(shell exec sleep 600 >gate)\n");
        let gate = dir.path().join("gate");
        mkfifo(&gate, Mode::S_IRWXU).unwrap();
        let gate = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(gate).unwrap();
        let mut make = Make::default();
        make.limits.time_max = Duration::from_secs(2);
        let refused = make.resolve(dir.path(), "test").unwrap_err();
        assert_eq!(refused.to_string(), "make took longer than 2000 ms");
        // Hung up: the sleep held the other end, and is gone.
        let mut fds = [PollFd::new(gate.as_fd(), PollFlags::empty())];
        assert_eq!(poll(&mut fds, 20_000_u16), Ok(1));
        assert_eq!(fds[0].revents(), Some(PollFlags::POLLHUP));
    }

    #[test]
    fn a_command_no_argument_can_hold_is_refused() {
        let recipe = |bytes: usize| format!("test:\n\t:{}\n", "x".repeat(bytes - 2));
        assert_eq!(resolved(&recipe(COMMAND_BYTES_MAX)).unwrap().len(), COMMAND_BYTES_MAX - 1);
        let refused = resolved(&recipe(COMMAND_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(refused.to_string(), "make printed more than 131071 bytes");
        let dir = workspace("");
        fs::write(dir.path().join("Makefile"), b"test:\n\techo \xff\n").unwrap();
        assert!(matches!(
            Make::default().resolve(dir.path(), "test"),
            Err(ResolveError::NotText(_))
        ));
    }

    #[test]
    fn a_talkative_stderr_neither_blocks_nor_matters() {
        let makefile = "$(shell head -c 1000000 /dev/zero >&2)\ntest:\n\techo done\n";
        assert_eq!(resolved(makefile).unwrap(), "echo done");
    }
}
