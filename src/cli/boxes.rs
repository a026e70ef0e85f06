//! The sandbox and the languages as options and environment ask for them.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::failure::{Failure, error_words};
use crate::check::lang::{Language, LanguageTable, Resolver, unpack_workspaces_into};
use crate::check::languages::{Languages, Workspaces};
use crate::check::run::{CheckRunner, CheckSettings};
use crate::check::status::Examined;
use crate::config::{Config, Isolation, Overrides, Problems, WorkspaceChoice};
use crate::executor::SandboxExecutor;
use cofferdam_core::SetupFailure;
use cofferdam_sandbox::builtin_profile;
use cofferdam_sandbox::plan::PATH_DEFAULT;
use cofferdam_sandbox::{RootSource, Sandbox, SandboxConfig, StateDirectory};

/// The environment's word for `--rootfs`.
pub const ROOTFS_VARIABLE: &str = "SANDBOX_ROOTFS";
/// The profile of everything but `exec --profile`.
pub const PROFILE: &str = "default";
/// Where workspaces are looked for when nothing was said.
const LANGS_HERE: &str = "langs";

/// What images of the platform keep build caches in, or the directories of packages; written to
/// where it exists and nothing else is said.
const WRITABLE_IN_IMAGES: [&str; 5] =
    ["/opt/cargo", "/opt/cargo-target", "/opt/go/cache", "/opt/go/mod", "/opt/nuget"];

/// Where workspaces and the root file system are; each beats its variable.
#[derive(Debug, Args)]
pub struct Places {
    /// One workspace for every language, as in a one-language image [RUN_WORKSPACE]
    #[arg(long, value_name = "DIR", conflicts_with = "langs")]
    workspace: Option<PathBuf>,
    /// The directory that holds a workspace per language [LANGS_DIR]
    #[arg(long, value_name = "DIR")]
    langs: Option<PathBuf>,
    /// The root file system of the boxes instead of the host's [SANDBOX_ROOTFS]
    #[arg(long, value_name = "DIR")]
    rootfs: Option<PathBuf>,
}

impl Places {
    /// The configuration of the environment, with these places over it.
    pub fn config(self) -> Result<Config, Problems> {
        let (config, problems) = self.read(None);
        problems.none_or(config)
    }

    /// The configuration and what it names on this host; all that is wrong
    /// with either is told at once.
    pub fn look(self, addr: Option<String>) -> Result<(Config, Found), Problems> {
        let (config, mut problems) = self.read(addr);
        match Found::look(&config) {
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

/// What runs checks, before it is told how many at once.
#[derive(Debug)]
pub struct Checking {
    /// The box maker.
    pub executor: SandboxExecutor,
    /// What can be run.
    pub languages: Languages,
}

impl Checking {
    /// A runner of as many checks at once as `config` says, with boxes made ahead, over a backend
    /// that has room for `others` beside them. It tells what was `examined` before.
    pub fn runner_of_many(
        self,
        config: &Config,
        examined: Examined,
        others: usize,
    ) -> Result<(Arc<CheckRunner>, Arc<SandboxExecutor>), SetupFailure> {
        self.runner(config, config.concurrency, config.standby_max, examined, others)
    }

    /// A runner of one check as `config` would have it run.
    pub fn runner_of_one(self, config: &Config) -> Result<Arc<CheckRunner>, SetupFailure> {
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

/// What a configuration names on this host, found to be there.
#[derive(Debug)]
pub struct Found {
    root: RootSource,
    workspaces: Workspaces,
    table: LanguageTable,
    resolver: Resolver,
    writable_paths: Option<Vec<PathBuf>>,
}

impl Found {
    /// Looks for everything `config` names; all that is missing is told at once.
    pub fn look(config: &Config) -> Result<Self, Problems> {
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

    /// What holds all that runs get copies of.
    pub fn workspaces(&self) -> &Path {
        match &self.workspaces {
            Workspaces::One(directory) | Workspaces::PerLanguage(directory) => directory,
        }
    }

    /// The language of `slug`, if there is one.
    pub fn language(&self, slug: &str) -> Option<&Language> {
        self.table.get(slug)
    }

    /// Holds a single workspace to having a command: without one there is nothing to serve.
    pub fn has_command(&self) -> Result<(), Problems> {
        match &self.workspaces {
            Workspaces::One(directory) => {
                let resolved = self.resolver.resolve(directory);
                resolved.map(drop).map_err(|error| Problems(vec![format!("workspace: {error}")]))
            }
            Workspaces::PerLanguage(_) => Ok(()),
        }
    }

    /// Refuses one workspace for every language that has no Makefile.
    pub fn has_workspace(&self) -> Result<(), Failure> {
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

    /// Opens the sandbox, which never shows `private`, and looks for the
    /// toolchains in a box.
    pub fn open(
        self,
        isolation: Isolation,
        private: Vec<PathBuf>,
    ) -> Result<Checking, SetupFailure> {
        let Self { root, workspaces, table, resolver, writable_paths } = self;
        let profile = builtin_profile(PROFILE)
            .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
        let strict = isolation == Isolation::Strict;
        let mut sandbox = Sandbox::open(SandboxConfig { profile, root, private, strict })?;
        add_layers(&mut sandbox, writable_paths);
        let executor = SandboxExecutor::new(sandbox);
        let search_path = search_path(&workspaces);
        let looked = Languages::look(table, workspaces, resolver, search_path, &executor);
        let languages = looked.map_err(|why| why.into_failure("exec sh"))?;
        Ok(Checking { executor, languages })
    }
}

/// Lets runs write to `paths`, or to what the platform's images have. What was asked for and cannot
/// be had stays as it is, and is told.
fn add_layers(sandbox: &mut Sandbox, paths: Option<Vec<PathBuf>>) {
    let asked = paths.is_some();
    let paths = paths.unwrap_or_else(|| WRITABLE_IN_IMAGES.map(PathBuf::from).to_vec());
    for (path, reason) in sandbox.layer_over(&paths) {
        let level = if asked { log::Level::Warn } else { log::Level::Debug };
        log::log!(
            level,
            "RUN_WRITABLE_PATHS: {}: {reason}; runs cannot write to it",
            path.display()
        );
    }
}

/// The root of every box, or what is wrong with the one asked for.
pub fn root_source(rootfs: Option<&Path>) -> Result<RootSource, String> {
    match rootfs {
        None => Ok(RootSource::Host),
        Some(path) => existing_directory("--rootfs", path).map(RootSource::Directory),
    }
}

/// The four rules of where a request runs.
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

/// The workspaces that the binary carries, as a directory that no run can see.
fn shipped_workspaces() -> Result<PathBuf, String> {
    let unpacked = StateDirectory::open().and_then(|state| unpack_workspaces_into(state.path()));
    unpacked.map_err(|error| {
        format!("--langs: the built-in workspaces cannot be written: {}", error_words(&error))
    })
}

/// Where a one-language image has its programs beside the usual places, as its own PATH tells.
fn search_path(workspaces: &Workspaces) -> Option<String> {
    let Workspaces::One(_) = workspaces else { return None };
    let own = env::var("PATH").ok()?;
    let usual: Vec<&str> = PATH_DEFAULT.split(':').collect();
    // Of the others runs see nothing.
    let is_shown = |place: &&str| {
        ["/usr/", "/opt/"].iter().any(|top| place.starts_with(top)) && !usual.contains(place)
    };
    let places: Vec<&str> = own.split(':').filter(is_shown).collect();
    (!places.is_empty()).then(|| format!("{PATH_DEFAULT}:{}", places.join(":")))
}

fn table(workspaces: &Workspaces) -> Result<LanguageTable, String> {
    let table = match workspaces {
        Workspaces::One(_) => LanguageTable::embedded(),
        Workspaces::PerLanguage(langs) => LanguageTable::load(langs),
    };
    table.map_err(|error| error.to_string())
}

/// `path` as it is wherever we go from here.
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
