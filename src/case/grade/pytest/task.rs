//! What the runner is to run, and the command that runs it (pure).

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Serialize;
use uuid::Uuid;

use super::channel::ChannelSecret;
use super::ids::WantedId;
use super::prefix::PytestPrefix;
use crate::case::cell::ExecRequest;
use cofferdam_core::weakened::{self, Wall};

/// The runner, which gets its own source over stdin.
const MAIN: &str = include_str!("runner/main.py");
const RECORDER: &str = include_str!("runner/recorder.py");
/// Reads the runner and starts it. It has no single quote, so that a shell can take it in a pair of them.
const BOOT: &str = concat!(
    r#"import sys;g={"__name__":"runner","PARTS":sys.stdin.buffer.read().split(b"\0")};"#,
    r#"exec(compile(g["PARTS"].pop(0),"runner","exec"),g)"#,
);
/// Without the variables of Python, the working directory and start files on its path.
const PYTHON: [&str; 4] = ["python3", "-I", "-S", "-c"];
const REPORT_BYTES_MAX: u64 = 32 << 20;

/// Tests to run by pytest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PytestTask {
    command: PytestCommand,
    files: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PytestCommand {
    /// `python3 -m pytest -q`; without files the whole suite.
    Own,
    /// The command line of the Case.
    Prefix(PytestPrefix),
}

/// What the runner reads.
#[derive(Serialize)]
struct RunnerOrder<'task> {
    secret: String,
    canary: String,
    files: &'task [String],
    /// Whether ids are graded, so that files which are not there do not matter.
    by_id: bool,
    isolated: bool,
    marked: bool,
}

impl PytestTask {
    /// The tests of the files `names` in the sandbox; the whole suite if there are none.
    pub fn of_names(names: &[PathBuf]) -> Self {
        let files = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        Self { command: PytestCommand::Own, files }
    }

    /// The files of the tests `ids`, by the command line `cmd_prefix`; `None` if that runs no pytest.
    pub fn of_ids<'id>(
        cmd_prefix: &str,
        ids: impl IntoIterator<Item = &'id String>,
    ) -> Option<Self> {
        let files: BTreeSet<String> = ids.into_iter().map(|id| WantedId::file(id)).collect();
        let command = PytestCommand::Prefix(PytestPrefix::parse(cmd_prefix)?);
        Some(Self { command, files: files.into_iter().collect() })
    }

    /// The command that runs it, whose frames `secret` authenticates.
    pub(super) fn request(&self, secret: &ChannelSecret) -> ExecRequest {
        let mut request = match &self.command {
            PytestCommand::Own => ExecRequest::new(PYTHON.iter().copied().chain([BOOT, "-q"])),
            PytestCommand::Prefix(PytestPrefix { head, options }) => {
                let boot = format!("'{BOOT}'");
                // A missing file is a failed id, and a broken one no reason to run none of the others.
                let own = ["--continue-on-collection-errors"];
                let words = [head.as_str()].into_iter().chain(PYTHON).chain([boot.as_str()]);
                let words = words.chain(own).chain([options.as_str()]);
                ExecRequest::new(words.filter(|word| !word.is_empty()))
            }
        };
        request.shell = matches!(self.command, PytestCommand::Prefix(_));
        request.stdin = [MAIN.as_bytes(), RECORDER.as_bytes(), &self.order(secret)].join(&0);
        request.stdout_bytes_max = Some(REPORT_BYTES_MAX);
        request
    }

    fn order(&self, secret: &ChannelSecret) -> Vec<u8> {
        let order = RunnerOrder {
            secret: secret.hex(),
            canary: format!("test_{}", Uuid::new_v4().simple()),
            files: &self.files,
            by_id: matches!(self.command, PytestCommand::Prefix(_)),
            isolated: !weakened::lacks(Wall::Isolated),
            marked: !weakened::lacks(Wall::Marked),
        };
        // Texts, lists of texts and flags have a form in JSON.
        serde_json::to_vec(&order).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_run_by_literal_words() {
        let secret = ChannelSecret::random();
        let request = PytestTask::of_names(&["tests/test a.py".into()]).request(&secret);
        assert_eq!(request.argv, ["python3", "-I", "-S", "-c", BOOT, "-q"]);
        assert!(!request.shell);
    }

    #[test]
    fn ids_are_run_by_their_files_and_the_case_s_command_line() {
        let ids = ["tests\\b.py::x[a b]", "a.py::C::y", "tests/b.py::z"].map(str::to_owned);
        let task = PytestTask::of_ids("env A=1 python3 -m pytest -k 'p q'", &ids).unwrap();
        assert_eq!(task.files, ["a.py", "tests/b.py"]);
        let request = task.request(&ChannelSecret::random());
        assert!(request.shell);
        let line = request.argv.join(" ");
        assert!(line.starts_with("env A=1 python3 -I -S -c 'import sys;"), "{line}");
        assert!(line.ends_with("' --continue-on-collection-errors -k 'p q'"), "{line}");
        assert_eq!(PytestTask::of_ids("tox", &ids), None);
    }

    #[test]
    fn neither_words_nor_variables_hold_the_secret() {
        let secret = ChannelSecret::random();
        let ids = ["a.py::b".to_owned()];
        for task in
            [PytestTask::of_names(&[]), PytestTask::of_ids("python3 -m pytest", &ids).unwrap()]
        {
            let request = task.request(&secret);
            assert!(!request.argv.join(" ").contains(&secret.hex()));
            assert!(request.env.is_empty());
            let parts: Vec<&[u8]> = request.stdin.split(|byte| *byte == 0).collect();
            assert_eq!(parts.len(), 3);
            assert!(String::from_utf8_lossy(parts[2]).contains(&secret.hex()));
        }
    }

    #[test]
    fn a_shell_can_take_the_boot_in_single_quotes() {
        assert!(!BOOT.contains('\''));
    }
}
