//! Which languages can run here: workspace, command, toolchain.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::check::lang::{AnyOf, Language, LanguageTable, Resolver, Version, plain_words};
use crate::executor::{Executor, RunInput, SandboxExecutor, WorkspaceInput};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{
    Limits, NotStarted, Outcome, Prestart, RunReport, RunSpec, SetupFailure, StdinSource, Watch,
};
use cofferdam_sandbox::plan::PATH_DEFAULT;

/// How long the search for all toolchains, or one version command, may take.
const LOOK_WAIT: Duration = Duration::from_secs(20);
/// ProgramFinder that recipes of one-language images call, in addition to those of the table.
const CALLED_IN_IMAGES: [&str; 4] = ["bb", "cargo", "kotlin", "python"];

/// Where languages find their workspaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workspaces {
    /// Every slug uses this directory, whose image brings the toolchain: a one-language image.
    One(PathBuf),
    /// Slug `x` uses the directory `x` below this one.
    PerLanguage(PathBuf),
}

impl Workspaces {
    /// The workspace of `slug`.
    pub fn directory(&self, slug: &str) -> PathBuf {
        match self {
            Self::One(directory) => directory.clone(),
            Self::PerLanguage(directory) => directory.join(slug),
        }
    }
}

/// The languages of this service, and what is missing for each.
#[derive(Debug)]
pub struct Languages {
    table: LanguageTable,
    workspaces: Workspaces,
    resolver: Resolver,
    /// PATH of every run, if it is not the default.
    search_path: Option<String>,
    /// Executables that a language requires and the sandbox lacks.
    missing: BTreeSet<String>,
    /// Whether each toolchain whose version is known is new enough, or why not.
    versions: Mutex<BTreeMap<String, Result<(), String>>>,
    /// Whether each slug could run when it was last checked.
    available: BTreeMap<String, AtomicBool>,
}

/// One language as `cofferdam langs` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanguageStatus {
    /// The slug.
    pub slug: String,
    /// The folder posted files go to.
    pub folder: String,
    /// The solution's name in it, then the checker's where one is required.
    pub files: Vec<String>,
    /// Whether `checker_text` is required.
    pub checker_required: bool,
    /// The version line of the toolchain and the resolved command, or what is missing.
    pub available: Result<(String, String), String>,
}

impl Languages {
    /// Looks for every toolchain inside a sandbox, since a run cannot use one that only the host
    /// sees. A single workspace for all slugs brings its own toolchain, which its recipe names.
    pub fn look(
        table: LanguageTable,
        workspaces: Workspaces,
        resolver: Resolver,
        search_path: Option<String>,
        executor: &SandboxExecutor,
    ) -> Result<Self, NotStarted> {
        let required = table.iter().flat_map(|language| &language.requires);
        let wanted: BTreeSet<&str> =
            required.flat_map(AnyOf::names).chain(CALLED_IN_IMAGES).collect();
        let missing = missing_executables(&wanted, search_path.as_deref(), executor)?;
        let mut languages = Self {
            table,
            workspaces,
            resolver,
            search_path,
            missing,
            versions: Mutex::default(),
            available: BTreeMap::new(),
        };
        let seen = |language: &Language| {
            let available = languages.seems_available(language);
            (language.slug.clone(), AtomicBool::new(available))
        };
        languages.available = languages.table.iter().map(seen).collect();
        Ok(languages)
    }

    /// PATH of every run, if it is not the default.
    pub fn search_path(&self) -> Option<&str> {
        self.search_path.as_deref()
    }

    /// The language of that slug.
    pub fn get(&self, slug: &str) -> Option<&Language> {
        self.table.get(slug)
    }

    /// Every slug, sorted.
    pub fn slugs(&self) -> impl Iterator<Item = &str> {
        self.table.iter().map(|language| language.slug.as_str())
    }

    /// The slugs that could run at the start, or when last requested. Checks nothing, so it can be
    /// called often.
    pub fn available(&self) -> Vec<&str> {
        let available = self.available.iter().filter(|(_, now)| now.load(Ordering::Relaxed));
        available.map(|(slug, _)| slug.as_str()).collect()
    }

    /// Whether the toolchain and a Makefile exist. `make` runs when the language is first
    /// requested.
    fn seems_available(&self, language: &Language) -> bool {
        self.resolver.may_resolve(&self.workspaces.directory(&language.slug))
            && (matches!(self.workspaces, Workspaces::One(_)) || self.toolchain(language).is_ok())
    }

    /// The workspace that a run of `language` gets a copy of, and the command it runs there;
    /// otherwise what is missing.
    pub fn command(
        &self,
        language: &Language,
        executor: &SandboxExecutor,
    ) -> Result<(PathBuf, String), String> {
        let found = self.find_command(language, executor);
        if let Some(available) = self.available.get(&language.slug) {
            available.store(found.is_ok(), Ordering::Relaxed);
        }
        found
    }

    /// What may be executed ahead of runs of `language`, if its workspace offers that.
    pub fn prestart(&self, language: &Language, workspace: &Path) -> Option<Prestart> {
        let command = CString::new(&*self.resolver.resolve_prestart(workspace)?).ok()?;
        let argv = vec![c"sh".to_owned(), c"-c".to_owned(), command];
        Some(Prestart { argv, label: language.slug.clone() })
    }

    fn find_command(
        &self,
        language: &Language,
        executor: &SandboxExecutor,
    ) -> Result<(PathBuf, String), String> {
        let workspace = self.workspaces.directory(&language.slug);
        let command = self.resolver.resolve(&workspace).map_err(|error| error.to_string())?;
        match self.workspaces {
            Workspaces::PerLanguage(_) => {
                self.toolchain(language)?;
                self.check_version(language, executor)?;
            }
            Workspaces::One(_) => self.programs(&command)?,
        }
        Ok((workspace, command.to_string()))
    }

    /// Checks that the sandbox has the toolchains that `command` calls by bare names. The shell
    /// reports other missing programs.
    fn programs(&self, command: &str) -> Result<(), String> {
        let called = command.lines().filter_map(|line| plain_words(line)?.first().copied());
        let missing = called.into_iter().find(|name| self.missing.contains(*name));
        missing.map_or(Ok(()), |name| Err(not_installed(name)))
    }

    /// Checks that the toolchain is new enough for the workspace, once per language.
    fn check_version(&self, language: &Language, executor: &SandboxExecutor) -> Result<(), String> {
        let Some(minimum) = &language.minimum else { return Ok(()) };
        // Held while the version command runs, so that concurrent first requests run it once.
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = versions.get(&language.slug) {
            return known.clone();
        }
        let said = match self.version(language, executor) {
            Ok(said) => said,
            // The run fails in the same way, and reports it better.
            Err(VersionError::NotStarted(_)) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let known = at_least(minimum, &said);
        versions.insert(language.slug.clone(), known.clone());
        known
    }

    /// Checks that the sandbox has what `language` requires; otherwise returns what is missing.
    fn toolchain(&self, language: &Language) -> Result<(), String> {
        let is_missing = |any: &&AnyOf| any.names().all(|name| self.missing.contains(name));
        language.requires.iter().find(is_missing).map_or(Ok(()), |any| Err(none_installed(any)))
    }

    /// The first line that the version command prints.
    fn version(
        &self,
        language: &Language,
        executor: &SandboxExecutor,
    ) -> Result<String, VersionError> {
        let argv: Vec<&str> = language.version.iter().map(String::as_str).collect();
        let report = run_in_sandbox(&argv, Some(language), self.search_path(), executor).map_err(
            |error| match (error, argv.first()) {
                (NotStarted::Exec { errno: libc::ENOENT }, Some(name)) => {
                    VersionError::Toolchain(not_installed(name))
                }
                (error, _) => VersionError::NotStarted(error),
            },
        )?;
        let (stdout, stderr) = (report.stdout.text(), report.stderr.text());
        let line =
            stdout.lines().chain(stderr.lines()).map(str::trim).find(|line| !line.is_empty());
        match (report.outcome, line) {
            (Outcome::Exited { code: 0 }, Some(line)) => Ok(line.to_owned()),
            (outcome, line) => {
                let said = line.unwrap_or("no output");
                let words = format!("`{}` {}: {said}", argv.join(" "), outcome.word());
                Err(VersionError::Toolchain(words))
            }
        }
    }

    /// The status of every language. Runs the version commands in sandboxes.
    pub fn status(&self, executor: &SandboxExecutor) -> Vec<LanguageStatus> {
        self.table.iter().map(|language| self.status_of(language, executor)).collect()
    }

    fn status_of(&self, language: &Language, executor: &SandboxExecutor) -> LanguageStatus {
        let available = self.command(language, executor).and_then(|(_, command)| {
            self.toolchain(language)?;
            let version = self.version(language, executor).map_err(|error| error.to_string())?;
            Ok((version, command))
        });
        let names = [Some(&language.solution), language.checker.as_ref()];
        LanguageStatus {
            slug: language.slug.clone(),
            folder: language.folder.to_string(),
            files: names.into_iter().flatten().map(|path| path.file_name().to_owned()).collect(),
            checker_required: language.checker.is_some(),
            available,
        }
    }
}

/// The environment of every run. Of the service's own variables it holds only those in `passed`.
pub fn environment(language: Option<&Language>, passed: &BTreeMap<String, String>) -> Vec<CString> {
    let own =
        [("HOME", "/tmp/home"), ("LANG", "C.UTF-8"), ("PATH", PATH_DEFAULT), ("TMPDIR", "/tmp")];
    let mut variables: BTreeMap<&str, &str> = own.into();
    variables.extend(
        language.iter().flat_map(|language| &language.env).map(|(k, v)| (k.as_str(), v.as_str())),
    );
    variables.extend(passed.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    // No variable holds a NUL: an environment cannot, and the table refuses it.
    variables
        .iter()
        .filter_map(|(key, value)| CString::new(format!("{key}={value}")).ok())
        .collect()
}

/// Asks the shell of one sandbox for all executables.
fn missing_executables(
    wanted: &BTreeSet<&str>,
    search_path: Option<&str>,
    executor: &SandboxExecutor,
) -> Result<BTreeSet<String>, NotStarted> {
    const SCRIPT: &str = r#"for name; do command -v "$name" >/dev/null || echo "$name"; done"#;
    let argv: Vec<&str> =
        ["sh", "-c", SCRIPT, "sh"].into_iter().chain(wanted.iter().copied()).collect();
    let report = run_in_sandbox(&argv, None, search_path, executor)?;
    Ok(report.stdout.text().lines().map(str::to_owned).collect())
}

fn not_installed(name: &str) -> String {
    format!("{name} is not installed where runs can see it")
}

fn none_installed(any: &AnyOf) -> String {
    let names: Vec<&str> = any.names().collect();
    match names[..] {
        [name] => not_installed(name),
        _ => format!("none of {} is installed where runs can see it", names.join(", ")),
    }
}

/// Checks that `said`, the version line of a toolchain, names at least `minimum`.
fn at_least(minimum: &Version, said: &str) -> Result<(), String> {
    match Version::first_in(said) {
        Some(version) if version >= *minimum => Ok(()),
        Some(_) => Err(format!("{said}: too old; the workspace needs {minimum} or newer")),
        None => Err(format!("{said}: no version; the workspace needs {minimum} or newer")),
    }
}

/// Why the version of a toolchain is unknown.
#[derive(Debug, thiserror::Error)]
enum VersionError {
    /// The command did not start.
    #[error(transparent)]
    NotStarted(NotStarted),
    /// The command printed no version.
    #[error("{0}")]
    Toolchain(String),
}

fn run_in_sandbox(
    argv: &[&str],
    language: Option<&Language>,
    search_path: Option<&str>,
    executor: &SandboxExecutor,
) -> Result<RunReport, NotStarted> {
    let passed = search_path.map(|path| ("PATH".to_owned(), path.to_owned())).into_iter().collect();
    let cancel = CancelToken::new().map_err(|error| SetupFailure::from_io("eventfd", &error))?;
    let spec = RunSpec {
        argv: argv.iter().filter_map(|word| CString::new(*word).ok()).collect(),
        env: environment(language, &passed),
        workdir: Path::new("/workspace").into(),
        stdin: StdinSource::Null,
        limits: Limits::default().with_wall(LOOK_WAIT),
        ..RunSpec::default()
    };
    let workspace = WorkspaceInput::Template { dir: None, files: &[] };
    let input = RunInput { spec, workspace, retained: Default::default() };
    executor.execute(input, &Watch::of(cancel), None)
}
