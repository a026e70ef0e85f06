//! git of the root file system, in sandboxes, with a configuration of ours alone.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;

use super::error::{RepositoryError, tail_of};
use super::git_environment::{ISOLATED, isolated_environment};
use crate::egress::EgressGrant;
use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::trees::{PhaseTree, TMP};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::rel_path::RelPath;
use cofferdam_core::{
    Bind, ExcessOutput, LimitKind, NotStarted, Outcome, RunSpec, SetupFailure, StdinSource, Watch,
    WorkspacePath,
};
use cofferdam_tree::put;

/// Where sandboxes see the configuration, below `/tmp`.
const CONFIG_NAME: &str = "gitconfig";
const CONFIG_PATH: &str = "/tmp/gitconfig";
/// Bytes of what git prints that are kept: a list of some 300 000 refs.
const STDOUT_BYTES_MAX: u64 = 32 << 20;
const STDERR_BYTES_MAX: u64 = 64 << 10;

/// Settings of the calls here, besides [`ISOLATED`].
const SETTINGS: [(&str, &str); 22] = [
    ("core.logAllRefUpdates", "false"),
    ("core.protectHFS", "true"),
    ("core.protectNTFS", "true"),
    ("core.symlinks", "true"),
    ("core.fileMode", "true"),
    ("core.sshCommand", "false"),
    ("core.askPass", ""),
    ("credential.helper", ""),
    ("init.templateDir", ""),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "no"),
    ("fetch.fsckObjects", "true"),
    ("transfer.fsckObjects", "true"),
    // One object more is enough for a pack.
    ("fetch.unpackLimit", "1"),
    ("transfer.bundleURI", "false"),
    ("maintenance.auto", "false"),
    ("protocol.allow", "never"),
    ("protocol.http.allow", "always"),
    ("protocol.https.allow", "always"),
    // Redirects within the repository's host; the proxy refuses others.
    ("http.followRedirects", "initial"),
    ("user.useConfigOnly", "true"),
    ("advice.detachedHead", "false"),
];

/// Faults that are common in old repositories and harm nothing here.
const OLD_FAULTS: [&str; 13] = [
    "badDate",
    "badDateOverflow",
    "badEmail",
    "badName",
    "badTagName",
    "badTimezone",
    "missingEmail",
    "missingNameBeforeEmail",
    "missingSpaceBeforeDate",
    "missingSpaceBeforeEmail",
    "missingTaggerEntry",
    "zeroPaddedDate",
    "zeroPaddedFilemode",
];

fn settings() -> impl Iterator<Item = (String, &'static str)> {
    let plain = SETTINGS.into_iter().map(|(name, value)| (name.to_owned(), value));
    let faults = OLD_FAULTS.into_iter().flat_map(|fault| {
        ["fetch.fsck", "fsck"].map(|section| (format!("{section}.{fault}"), "ignore"))
    });
    plain.chain(faults)
}

/// Replaces the user's configuration file, also for programs that git starts itself.
fn config_text() -> String {
    let entry = |(name, value): (String, &str)| {
        let (section, key) = name.rsplit_once('.').unwrap_or((&name, ""));
        let section = match section.split_once('.') {
            Some((section, subsection)) => format!("{section} \"{subsection}\""),
            None => section.to_owned(),
        };
        format!("[{section}]\n\t{key} = \"{value}\"\n")
    };
    let isolated = ISOLATED.map(|(name, value)| (name.to_owned(), value));
    isolated.into_iter().chain(settings()).map(entry).collect()
}

/// The environment of git, without a proxy's.
fn environment() -> BTreeMap<String, String> {
    const VARIABLES: [(&str, &str); 13] = [
        // Read by the programs that git starts; the same settings count for git itself as variables.
        ("GIT_CONFIG_GLOBAL", CONFIG_PATH),
        ("GIT_ASKPASS", "/bin/false"),
        ("SSH_ASKPASS", "/bin/false"),
        ("GIT_SSH_COMMAND", "false"),
        ("GIT_ALLOW_PROTOCOL", "http:https"),
        ("GIT_PROTOCOL_FROM_USER", "0"),
        ("GIT_LFS_SKIP_SMUDGE", "1"),
        ("GIT_AUTHOR_NAME", "task"),
        ("GIT_AUTHOR_EMAIL", "task@localhost"),
        ("GIT_AUTHOR_DATE", "946684800 +0000"),
        ("GIT_COMMITTER_NAME", "task"),
        ("GIT_COMMITTER_EMAIL", "task@localhost"),
        ("GIT_COMMITTER_DATE", "946684800 +0000"),
    ];
    let mut all = isolated_environment(settings());
    all.extend(VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())));
    all
}

/// One call of git.
#[derive(Debug, Default)]
pub struct GitCall<'a> {
    /// The arguments.
    pub args: Vec<&'a str>,
    /// `GIT_DIR`.
    pub git_dir: &'a str,
    /// `GIT_WORK_TREE`, if it has one.
    pub work_tree: Option<&'a str>,
    /// A directory of objects besides those of `GIT_DIR`.
    pub alternate: Option<&'a str>,
    /// Standard input.
    pub stdin: Vec<u8>,
    /// Read-only directories of the host that it sees.
    pub binds: Vec<Bind>,
    /// What it may reach.
    pub egress: Option<&'a EgressGrant>,
}

/// Runs git over one file system.
#[derive(Debug)]
pub struct GitSandbox<'a> {
    tree: &'a PhaseTree,
    bounds: PhaseBounds,
    cancel: &'a CancelToken,
    deadline: Deadline,
    /// Bytes of the file system, for the error of one that is full.
    bytes_max: u64,
}

impl<'a> GitSandbox<'a> {
    /// Writes the configuration into `tree`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(
        tree: &'a PhaseTree,
        bounds: PhaseBounds,
        cancel: &'a CancelToken,
        deadline: Deadline,
        bytes_max: u64,
    ) -> Result<Self, RepositoryError> {
        put_file(tree, &format!("{TMP}/{CONFIG_NAME}"), config_text().as_bytes())?;
        Ok(Self { tree, bounds, cancel, deadline, bytes_max })
    }

    /// The file system.
    pub fn tree(&self) -> &'a PhaseTree {
        self.tree
    }

    /// Runs git to its end and returns what it printed.
    ///
    /// # Errors
    /// It failed, or hit a limit.
    pub fn run(&self, call: GitCall<'_>) -> Result<Vec<u8>, RepositoryError> {
        let GitCall { args, git_dir, work_tree, alternate, stdin, binds, egress } = call;
        let mut env = environment();
        env.insert("GIT_DIR".to_owned(), git_dir.to_owned());
        env.extend(work_tree.map(|path| ("GIT_WORK_TREE".to_owned(), path.to_owned())));
        let alternate = alternate.map(str::to_owned);
        env.extend(alternate.map(|path| ("GIT_ALTERNATE_OBJECT_DIRECTORIES".to_owned(), path)));
        env.extend(egress.iter().flat_map(|grant| grant.environment()));
        let wall = self.deadline.remaining();
        if wall.is_zero() {
            return Err(timed_out());
        }
        let spec = RunSpec {
            argv: c_strings(std::iter::once("git").chain(args.iter().copied()))?,
            env: c_strings(env.iter().map(|(name, value)| format!("{name}={value}")))?,
            workdir: PathBuf::from(work_tree.unwrap_or("/tmp")),
            stdin: if stdin.is_empty() { StdinSource::Null } else { StdinSource::Bytes(stdin) },
            limits: self.bounds.limits(wall),
            excess_output: ExcessOutput::Dropped {
                stdout_bytes_max: STDOUT_BYTES_MAX,
                stderr_bytes_max: STDERR_BYTES_MAX,
            },
            binds,
            egress: egress.map(EgressGrant::service),
            ..RunSpec::default()
        };
        let watch = Watch::of(self.cancel.clone());
        let report = self.tree.run(spec, &WorkspacePath::default(), &watch, None);
        let report = report.map_err(|error: NotStarted| error.into_failure("exec git"))?;
        let failed =
            |limit| RepositoryError::CloneFailed { message: tail_of(&report.stderr.bytes), limit };
        match report.outcome {
            Outcome::Exited { code: 0 } if report.stdout.truncated => {
                let message = "the list of refs is too long".to_owned();
                Err(RepositoryError::CloneFailed { message, limit: None })
            }
            Outcome::Exited { code: 0 } => Ok(report.stdout.bytes),
            Outcome::Cancelled => Err(RepositoryError::Cancelled),
            Outcome::LimitHit { kind: LimitKind::Disk, .. } => Err(self.too_large()),
            Outcome::LimitHit { kind: LimitKind::WallTime, .. } => Err(timed_out()),
            Outcome::LimitHit { kind, .. } => Err(failed(Some(kind))),
            Outcome::Exited { .. } | Outcome::Signaled { .. } if self.is_full() => {
                Err(self.too_large())
            }
            Outcome::Exited { .. } | Outcome::Signaled { .. } => Err(failed(None)),
        }
    }

    fn too_large(&self) -> RepositoryError {
        RepositoryError::TooLarge { bytes_max: self.bytes_max }
    }

    /// Whether the file system has no room left for a few pages.
    fn is_full(&self) -> bool {
        const NEARLY_NOTHING_BYTES: u64 = 64 << 10;
        self.tree.usage().is_ok_and(|usage| {
            usage.used_bytes.saturating_add(NEARLY_NOTHING_BYTES) >= usage.limit_bytes
                || usage.used_inodes.saturating_add(4) >= usage.limit_inodes
        })
    }
}

fn timed_out() -> RepositoryError {
    let message = "it took longer than CLONE_TIMEOUT_SECS".to_owned();
    RepositoryError::CloneFailed { message, limit: Some(LimitKind::WallTime) }
}

/// The texts as the kernel takes them.
///
/// # Errors
/// One holds a NUL.
pub fn c_strings(
    texts: impl IntoIterator<Item = impl Into<Vec<u8>>>,
) -> Result<Vec<CString>, SetupFailure> {
    let converted = texts.into_iter().map(CString::new).collect::<Result<_, _>>();
    converted.map_err(|_| SetupFailure::from_words("arguments", "one holds a NUL"))
}

/// Writes a file of the tenant's at `path` below the root of `tree`.
///
/// # Errors
/// It cannot be written.
pub fn put_file(tree: &PhaseTree, path: &str, contents: &[u8]) -> Result<(), RepositoryError> {
    let failed = |reason: String| SetupFailure::from_words(format!("write {path}"), reason);
    let location = RelPath::parse(path).map_err(|error| failed(error.to_string()))?;
    put(tree.root(), &location, contents, tree.owner())
        .map_err(|error| failed(error.to_string()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_configuration_but_ours_and_no_protocol_but_http_and_https() {
        let env = environment();
        for (name, value) in [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", CONFIG_PATH),
            ("GIT_ALLOW_PROTOCOL", "http:https"),
            ("GIT_TERMINAL_PROMPT", "0"),
        ] {
            assert_eq!(env[name], value);
        }
        let count: usize = env["GIT_CONFIG_COUNT"].parse().unwrap();
        assert_eq!(count, ISOLATED.len() + SETTINGS.len() + 2 * OLD_FAULTS.len());
        assert!(env.contains_key(&format!("GIT_CONFIG_VALUE_{}", count - 1)));
    }

    #[test]
    fn the_file_has_every_setting_in_its_section() {
        let text = config_text();
        for line in [
            "[core]\n\thooksPath = \"/dev/null\"\n",
            "[protocol \"https\"]\n\tallow = \"always\"\n",
            "[fetch \"fsck\"]\n\tzeroPaddedFilemode = \"ignore\"\n",
        ] {
            assert!(text.contains(line), "{line}");
        }
    }
}
