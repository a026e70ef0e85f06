//! A command to run in a Cell, and its validation.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{ExecCode, ExecError};
use super::layout::CellLayout;
use super::plan::StepLimits;
use crate::egress::EgressGrant;
use cofferdam_sandbox::plan::PATH_DEFAULT;

/// How long a command may run that names no time.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(900);
/// The most bytes of stdin.
pub const STDIN_BYTES_MAX: usize = 16 << 20;
/// The most bytes of one word or variable, the kernel's own limit with the NUL.
const WORD_BYTES_MAX: usize = (128 << 10) - 1;
/// The most bytes of all words and variables together.
const WORDS_BYTES_MAX: usize = 1 << 20;

/// The variable that says where a command sees the directory of the Case.
pub(super) const CASE_VARIABLE: &str = "CASE_DIR";

/// A command.
#[derive(Debug, Clone)]
pub struct ExecRequest {
    /// The program and its arguments, each as it is.
    pub argv: Vec<String>,
    /// Where it runs: relative to the sandbox, which is the default, or absolute in the Cell.
    pub cwd: Option<String>,
    /// Variables that differ from those of the executor; `None` removes one.
    pub env: BTreeMap<String, Option<String>>,
    /// How long it may run.
    pub timeout: Duration,
    /// Whether the words, joined with spaces, are a command of `sh -c`.
    pub shell: bool,
    /// Its standard input, at most [`STDIN_BYTES_MAX`].
    pub stdin: Vec<u8>,
    /// What it sees and reaches besides the Cell.
    pub access: StepAccess,
    /// Kept bytes of stdout, in place of the Case's limit: for output that is read by us alone.
    pub stdout_bytes_max: Option<u64>,
}

/// What a command sees and reaches besides its Cell: nothing, if not said otherwise.
#[derive(Debug, Clone, Default)]
pub struct StepAccess {
    /// Whether it sees the directory of the Case, read-only; `CASE_DIR` says where.
    pub shows_case: bool,
    /// What it may reach. Its variables are added to those of the request.
    pub egress: Option<EgressGrant>,
}

/// A valid request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CellStep {
    /// The words to execute.
    pub(super) argv: Vec<String>,
    /// The whole environment.
    pub(super) env: BTreeMap<String, String>,
    /// The working directory, as the command sees it.
    pub(super) cwd: PathBuf,
}

impl ExecRequest {
    /// A request that runs `argv` in the sandbox.
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: None,
            env: BTreeMap::new(),
            timeout: TIMEOUT_DEFAULT,
            shell: false,
            stdin: Vec::new(),
            access: StepAccess::default(),
            stdout_bytes_max: None,
        }
    }

    /// The limits of this command in a Cell that has `limits`.
    pub(super) fn limits(&self, limits: StepLimits) -> StepLimits {
        let stdout_bytes_max = self.stdout_bytes_max.unwrap_or(limits.stdout_bytes_max);
        StepLimits { stdout_bytes_max, ..limits }
    }

    /// The working directory, as results name it.
    pub(super) fn cwd(&self) -> &str {
        self.cwd.as_deref().unwrap_or(".")
    }

    /// Checks the request for a Cell that is laid out like `layout`.
    pub(super) fn checked(&self, layout: &CellLayout) -> Result<CellStep, ExecError> {
        let argv = self.words()?;
        let place = layout.locate(self.cwd()).ok_or_else(|| {
            ExecError::new(ExecCode::InvalidCwd, format!("{:?} is not in the Cell", self.cwd()))
                .with("cwd", self.cwd())
        })?;
        let env = self.environment(layout)?;
        let bytes = argv.iter().map(String::len).sum::<usize>()
            + env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if bytes > WORDS_BYTES_MAX {
            let words = format!("argv and env have {bytes} bytes; want at most {WORDS_BYTES_MAX}");
            return Err(ExecError::new(ExecCode::InvalidArgv, words));
        }
        if self.stdin.len() > STDIN_BYTES_MAX {
            let words =
                format!("stdin has {} bytes; want at most {STDIN_BYTES_MAX}", self.stdin.len());
            return Err(ExecError::new(ExecCode::TooLarge, words));
        }
        Ok(CellStep { argv, env, cwd: place.seen })
    }

    fn words(&self) -> Result<Vec<String>, ExecError> {
        let invalid = |words: &str| Err(ExecError::new(ExecCode::InvalidArgv, words));
        if self.argv.is_empty() {
            return invalid("'argv' is empty");
        }
        let words = match self.shell {
            true => vec!["sh".to_owned(), "-c".to_owned(), self.argv.join(" ")],
            false => self.argv.clone(),
        };
        if words.iter().any(|word| word.contains('\0')) {
            return invalid("a word of 'argv' holds a NUL");
        }
        if words.iter().any(|word| word.len() > WORD_BYTES_MAX) {
            return invalid("a word of 'argv' is too long");
        }
        Ok(words)
    }

    fn environment(&self, layout: &CellLayout) -> Result<BTreeMap<String, String>, ExecError> {
        let mut env = base_environment(layout.tmp());
        for (name, value) in &self.env {
            let is_name = !name.is_empty() && !name.contains(['=', '\0']);
            let length = name.len() + value.as_ref().map_or(0, String::len);
            let is_value = value.as_ref().is_none_or(|value| !value.contains('\0'));
            if !is_name || !is_value || length >= WORD_BYTES_MAX {
                let words = format!("the variable {name:?} cannot be set");
                return Err(ExecError::new(ExecCode::InvalidEnv, words).with("name", name.as_str()));
            }
            match value {
                Some(value) => drop(env.insert(name.clone(), value.clone())),
                None => drop(env.remove(name)),
            }
        }
        Ok(env)
    }
}

/// The variables of a command that changes none.
fn base_environment(tmp: &Path) -> BTreeMap<String, String> {
    let home = tmp.join("home");
    [
        ("PATH", PATH_DEFAULT.to_owned()),
        ("HOME", home.display().to_string()),
        ("TMPDIR", tmp.display().to_string()),
        ("LANG", "C.UTF-8".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(change: impl FnOnce(&mut ExecRequest)) -> Result<CellStep, ExecCode> {
        let mut request = ExecRequest::new(["echo", "a b", "$HOME"]);
        change(&mut request);
        request.checked(&CellLayout::sandboxed()).map_err(|error| error.code)
    }

    #[test]
    fn words_are_literal_and_a_shell_gets_them_joined_with_spaces() {
        assert_eq!(checked(|_| {}).unwrap().argv, ["echo", "a b", "$HOME"]);
        let shell = checked(|request| request.shell = true).unwrap();
        assert_eq!(shell.argv, ["sh", "-c", "echo a b $HOME"]);
    }

    #[test]
    fn variables_are_set_replaced_and_removed() {
        let step = checked(|request| {
            let changes = [("A", Some("1")), ("LANG", Some("C")), ("HOME", None), ("NO", None)];
            request.env = changes.map(|(name, value)| (name.into(), value.map(Into::into))).into();
        });
        let wanted = [("A", "1"), ("LANG", "C"), ("PATH", PATH_DEFAULT), ("TMPDIR", "/tmp")];
        assert_eq!(step.unwrap().env, wanted.map(|(a, b)| (a.to_owned(), b.to_owned())).into());
    }

    #[test]
    fn what_cannot_be_executed_is_refused_with_its_code() {
        type Change = fn(&mut ExecRequest);
        let changes: [(Change, ExecCode); 11] = [
            (|request| request.argv.clear(), ExecCode::InvalidArgv),
            (|request| request.argv.push("a\0".into()), ExecCode::InvalidArgv),
            (|request| request.argv.push("x".repeat(128 << 10)), ExecCode::InvalidArgv),
            (|request| request.argv.extend(vec!["x".repeat(100_000); 11]), ExecCode::InvalidArgv),
            (|request| request.cwd = Some("..".into()), ExecCode::InvalidCwd),
            (|request| request.cwd = Some("/etc".into()), ExecCode::InvalidCwd),
            (|request| request.cwd = Some(String::new()), ExecCode::InvalidCwd),
            (|request| drop(request.env.insert(String::new(), None)), ExecCode::InvalidEnv),
            (|request| drop(request.env.insert("A=B".into(), None)), ExecCode::InvalidEnv),
            (
                |request| drop(request.env.insert("A".into(), Some("\0".into()))),
                ExecCode::InvalidEnv,
            ),
            (|request| request.stdin = vec![0; STDIN_BYTES_MAX + 1], ExecCode::TooLarge),
        ];
        for (index, (change, code)) in changes.into_iter().enumerate() {
            assert_eq!(checked(change), Err(code), "{index}");
        }
    }
}
