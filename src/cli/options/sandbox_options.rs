//! Opens the sandbox and loads the languages according to options and environment.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use crate::check::lang::{Language, LanguageTable, Resolver, unpack_workspaces_into};
use crate::check::languages::{Languages, Workspaces};
use crate::check::run::{CheckRunner, CheckSettings};
use crate::check::status::Examined;
use crate::cli::failure::{Failure, error_words};
use crate::config::{Config, Isolation, Overrides, Problems, WorkspaceChoice};
use crate::executor::SandboxExecutor;
use crate::workspace::memory_bytes;
use cofferdam_core::SetupFailure;
use cofferdam_sandbox::engine::builtin_profile;
use cofferdam_sandbox::engine::{RootSource, SandboxConfig, SandboxHost, StateDirectory};
use cofferdam_sandbox::plan::PATH_DEFAULT;

/// The environment variable of `--rootfs`.
pub const ROOTFS_VARIABLE: &str = "SANDBOX_ROOTFS";
/// The profile of every sandbox, unless `exec --profile` names another.
pub const PROFILE: &str = "default";
/// The directory of the workspaces if neither option nor variable names one.
const LANGS_HERE: &str = "langs";

/// The part of the memory that sandboxes with runtimes started ahead may have, as a divisor.
const STANDBY_MEMORY_SHARE: u64 = 8;

/// Directories of build caches and packages in images of the platform. If they exist, runs may write
/// to them unless `RUN_WRITABLE_PATHS` is set.
const WRITABLE_IN_IMAGES: [&str; 5] =
    ["/opt/cargo", "/opt/cargo-target", "/opt/go/cache", "/opt/go/mod", "/opt/nuget"];

/// The workspaces and the root file system; each option overrides its variable.
#[derive(Debug, Args)]
pub struct SandboxOptions {
    /// One workspace for every language, as in a one-language image [RUN_WORKSPACE]
    #[arg(long, value_name = "DIR", conflicts_with = "langs")]
    workspace: Option<PathBuf>,
    /// The directory that holds a workspace per language [LANGS_DIR]
    #[arg(long, value_name = "DIR")]
    langs: Option<PathBuf>,
    /// The root file system of the sandboxes instead of the host's [SANDBOX_ROOTFS]
    #[arg(long, value_name = "DIR")]
    rootfs: Option<PathBuf>,
}

impl SandboxOptions {
    /// The configuration from the environment, with these options applied.
    pub fn config(self) -> Result<Config, Problems> {
        let (config, problems) = self.read(None);
        problems.none_or(config)
    }

    /// The configuration, and what it names on this host. Reports all problems of both at once.
    pub fn resolve(self, addr: Option<String>) -> Result<(Config, ResolvedConfig), Problems> {
        let (config, mut problems) = self.read(addr);
        match ResolvedConfig::resolve(&config) {
            Ok(found) => problems.none_or((config, found)),
            Err(missing) => {
                problems.0.extend(missing.0);
                Err(problems)
            }
        }
    }

    fn read(self, addr: Option<String>) -> (Config, Problems) {
        let Self { workspace, langs, rootfs } = self;
        Config::read(env::vars_os(), &Overrides { addr, workspace, langs, rootfs })
    }
}

/// The executor and the languages of a check runner that does not exist yet.
#[derive(Debug)]
pub struct CheckBackend {
    /// Runs programs in sandboxes.
    pub executor: SandboxExecutor,
    /// The languages and their toolchains.
    pub languages: Languages,
}

impl CheckBackend {
    /// A runner with the concurrency and the standby pool that `config` asks for. Its executor has
    /// room for `others` further sandboxes. The runner reports the controls in `examined`.
    pub fn service_runner(
        self,
        config: &Config,
        examined: Examined,
        others: usize,
    ) -> Result<(Arc<CheckRunner>, Arc<SandboxExecutor>), SetupFailure> {
        self.runner(config, config.concurrency, config.standby_max, examined, others)
    }

    /// A runner of one check, without a standby pool.
    pub fn single_runner(self, config: &Config) -> Result<Arc<CheckRunner>, SetupFailure> {
        Ok(self.runner(config, 1, 0, Examined::default(), 0)?.0)
    }

    fn runner(
        self,
        config: &Config,
        concurrency: usize,
        standby_max: usize,
        examined: Examined,
        others: usize,
    ) -> Result<(Arc<CheckRunner>, Arc<SandboxExecutor>), SetupFailure> {
        let Self { mut executor, languages } = self;
        executor.prepare_for(concurrency + others, standby_max)?;
        if standby_max > 0 {
            executor.prestart_within(config.prestarted_max, prestart_bytes_max(config))?;
        }
        let executor = Arc::new(executor);
        let allowed =
            config.env_allow.iter().filter_map(|name| Some((name.clone(), env::var(name).ok()?)));
        let mut passed_env: BTreeMap<String, String> = allowed.collect();
        if let Some(path) = languages.search_path() {
            passed_env.entry("PATH".to_owned()).or_insert_with(|| path.to_owned());
        }
        let settings = CheckSettings {
            concurrency,
            standby_max,
            limits: config.limits.clone(),
            passed_env,
            examined,
        };
        Ok((CheckRunner::new(Arc::clone(&executor), languages, settings), executor))
    }
}

/// What a configuration names on this host, found to exist.
#[derive(Debug)]
pub struct ResolvedConfig {
    root: RootSource,
    workspaces: Workspaces,
    table: LanguageTable,
    resolver: Resolver,
    writable_paths: Option<Vec<PathBuf>>,
}

impl ResolvedConfig {
    /// Looks up everything that `config` names; reports everything missing at once.
    pub fn resolve(config: &Config) -> Result<Self, Problems> {
        let root = root_source(config.rootfs.as_deref());
        let languages = workspaces(&config.workspaces)
            .and_then(|workspaces| Ok((table(&workspaces)?, workspaces)));
        match (root, languages) {
            (Ok(root), Ok((table, workspaces))) => {
                let writable_paths = config.writable_paths.clone();
                Ok(Self { root, workspaces, table, resolver: Resolver::default(), writable_paths })
            }
            (root, languages) => {
                Err(Problems([root.err(), languages.err()].into_iter().flatten().collect()))
            }
        }
    }

    /// The directory that holds everything that runs get copies of.
    pub fn workspaces(&self) -> &Path {
        match &self.workspaces {
            Workspaces::One(directory) | Workspaces::PerLanguage(directory) => directory,
        }
    }

    /// The language `slug`, if the table has it.
    pub fn language(&self, slug: &str) -> Option<&Language> {
        self.table.get(slug)
    }

    /// Refuses a single workspace whose command does not resolve: there is nothing to serve.
    pub fn require_command(&self) -> Result<(), Problems> {
        match &self.workspaces {
            Workspaces::One(directory) => {
                let resolved = self.resolver.resolve(directory);
                resolved.map(drop).map_err(|error| Problems(vec![format!("workspace: {error}")]))
            }
            Workspaces::PerLanguage(_) => Ok(()),
        }
    }

    /// Refuses a single workspace without a Makefile.
    pub fn require_makefile(&self) -> Result<(), Failure> {
        match &self.workspaces {
            Workspaces::One(here) if !self.resolver.may_resolve(here) => {
                Err(Failure::Usage(format!(
                    "no workspace: {} has no Makefile; name the languages' workspaces with \
                     --langs DIR, or one workspace with --workspace DIR",
                    here.display()
                )))
            }
            _ => Ok(()),
        }
    }

    /// Opens the sandbox, which never shows `private`, and looks for the toolchains in it.
    pub fn open(
        self,
        isolation: Isolation,
        private: Vec<PathBuf>,
    ) -> Result<CheckBackend, SetupFailure> {
        let Self { root, workspaces, table, resolver, writable_paths } = self;
        let profile = builtin_profile(PROFILE)
            .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
        let strict = isolation == Isolation::Strict;
        let mut sandbox = SandboxHost::open(SandboxConfig { profile, root, private, strict })?;
        add_layers(&mut sandbox, writable_paths);
        let executor = SandboxExecutor::new(sandbox);
        let search_path = search_path(&workspaces);
        let looked = Languages::look(table, workspaces, resolver, search_path, &executor);
        let languages = looked.map_err(|why| why.into_failure("exec sh"))?;
        Ok(CheckBackend { executor, languages })
    }
}

/// Lets runs write to `paths`, or to the directories of the platform's images. A path where this
/// fails stays read-only; the log says so.
fn add_layers(sandbox: &mut SandboxHost, paths: Option<Vec<PathBuf>>) {
    let asked = paths.is_some();
    let paths = paths.unwrap_or_else(|| WRITABLE_IN_IMAGES.map(PathBuf::from).to_vec());
    for (path, reason) in sandbox.add_layers(&paths) {
        let level = if asked { log::Level::Warn } else { log::Level::Debug };
        log::log!(
            level,
            "RUN_WRITABLE_PATHS: {}: {reason}; runs cannot write to it",
            path.display()
        );
    }
}

/// The root file system of every sandbox, or what is wrong with the requested one.
pub fn root_source(rootfs: Option<&Path>) -> Result<RootSource, String> {
    match rootfs {
        None => Ok(RootSource::Host),
        Some(path) => existing_directory("--rootfs", path).map(RootSource::Directory),
    }
}

/// The four rules that choose the workspace of a request.
fn workspaces(choice: &WorkspaceChoice) -> Result<Workspaces, String> {
    let langs_here = Path::new(LANGS_HERE);
    match choice {
        WorkspaceChoice::Single(path) => {
            existing_directory("--workspace", path).map(Workspaces::One)
        }
        WorkspaceChoice::PerLanguage(path) => {
            existing_directory("--langs", path).map(Workspaces::PerLanguage)
        }
        WorkspaceChoice::Unset if langs_here.is_dir() => {
            existing_directory("--langs", langs_here).map(Workspaces::PerLanguage)
        }
        WorkspaceChoice::Unset if Resolver::default().may_resolve(Path::new(".")) => {
            existing_directory("--workspace", Path::new(".")).map(Workspaces::One)
        }
        WorkspaceChoice::Unset => shipped_workspaces().map(Workspaces::PerLanguage),
    }
}

/// Unpacks the workspaces that are built into the binary to a directory that no run can see.
fn shipped_workspaces() -> Result<PathBuf, String> {
    let unpacked = StateDirectory::open().and_then(|state| unpack_workspaces_into(state.path()));
    unpacked.map_err(|error| {
        format!("--langs: the built-in workspaces cannot be written: {}", error_words(&error))
    })
}

/// The most memory of runtimes started ahead, together, in bytes.
pub fn prestart_bytes_max(config: &Config) -> u64 {
    config.standby_memory_max.unwrap_or_else(|| memory_bytes() / STANDBY_MEMORY_SHARE)
}

/// The search path of a one-language image: the default path and the directories that the image's
/// own PATH adds.
fn search_path(workspaces: &Workspaces) -> Option<String> {
    let Workspaces::One(_) = workspaces else { return None };
    let own = env::var("PATH").ok()?;
    let usual: Vec<&str> = PATH_DEFAULT.split(':').collect();
    // Runs do not see other directories.
    let is_shown = |directory: &&str| {
        ["/usr/", "/opt/"].iter().any(|top| directory.starts_with(top))
            && !usual.contains(directory)
    };
    let directories: Vec<&str> = own.split(':').filter(is_shown).collect();
    (!directories.is_empty()).then(|| format!("{PATH_DEFAULT}:{}", directories.join(":")))
}

fn table(workspaces: &Workspaces) -> Result<LanguageTable, String> {
    let table = match workspaces {
        Workspaces::One(_) => LanguageTable::embedded(),
        Workspaces::PerLanguage(langs) => LanguageTable::load(langs),
    };
    table.map_err(|error| error.to_string())
}

/// The absolute path of the directory `path`, links resolved.
fn existing_directory(option: &str, path: &Path) -> Result<PathBuf, String> {
    let fault = |what: &dyn std::fmt::Display| {
        format!("{option}: {}: {what}; want a directory", path.display())
    };
    match fs::canonicalize(path) {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(fault(&"not a directory")),
        Err(error) => Err(fault(&error_words(&error))),
    }
}
