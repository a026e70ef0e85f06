//! The service's configuration: environment and flags in, one checked value or every problem out.

mod firecracker;
mod front;
mod jobs;
mod tokens;
mod values;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use self::values::{
    parse_address, parse_count, parse_decimal, parse_metrics_place, parse_names,
    parse_optional_bytes, parse_origins, parse_paths, parse_some_bytes,
};
use cofferdam_core::Limits;
use cofferdam_core::values::cpus::parse_cpus_milli;
use cofferdam_core::values::duration::parse_figure;
use cofferdam_sandbox::SANDBOXES_MAX;

pub use self::firecracker::{FirecrackerConfig, JailerConfig};
pub use self::front::FrontConfig;
pub use self::jobs::{JobsConfig, Roots, roots_for};
pub use self::tokens::Tokens;

/// What `RUN_CONCURRENCY` may be: every box has a host id of its own.
const WANTED_CONCURRENCY: &str = "a whole number from 1 to 4096";

/// What `STANDBY_MAX` may be.
const WANTED_STANDBY: &str = "a whole number from 0 to 4096";

/// Every name beginning with `RUN_` that means something here.
const RUN_NAMES: [&str; 13] = [
    "RUN_CONCURRENCY",
    "RUN_CPUS",
    "RUN_DISK_MAX",
    "RUN_ENV_ALLOW",
    "RUN_FILE_MAX",
    "RUN_INPUT_MAX",
    "RUN_MEMORY_MAX",
    "RUN_ON_DISCONNECT",
    "RUN_OUTPUT_MAX",
    "RUN_PIDS_MAX",
    "RUN_TIMEOUT_MAX",
    "RUN_WORKSPACE",
    "RUN_WRITABLE_PATHS",
];

/// Every name beginning with `JOBS_` that means something here; [`JobsConfig`] says what.
const JOBS_NAMES: [&str; 22] = [
    "JOBS_ALLOWED_ENV",
    "JOBS_FOLLOWERS_MAX",
    "JOBS_INPUT_MAX",
    "JOBS_MAX_ARTIFACT_COUNT",
    "JOBS_MAX_ARTIFACT_FILE_BYTES",
    "JOBS_MAX_ARTIFACT_TOTAL_BYTES",
    "JOBS_MAX_CPU_TIME_MS",
    "JOBS_MAX_DISK_BYTES",
    "JOBS_MAX_MEMORY_BYTES",
    "JOBS_MAX_PROCESSES",
    "JOBS_MAX_RECORD_BYTES",
    "JOBS_MAX_SNAPSHOT_BYTES",
    "JOBS_MAX_SNAPSHOT_FILES",
    "JOBS_MAX_STDERR_BYTES",
    "JOBS_MAX_STDOUT_BYTES",
    "JOBS_MAX_TIMEOUT_MS",
    "JOBS_QUEUE_MAX",
    "JOBS_RETENTION",
    "JOBS_STORE_DIR",
    "JOBS_STORE_MAX",
    "JOBS_WORKERS",
    "JOBS_WORKSPACE_ROOTS",
];

/// Every name beginning with `FIRECRACKER_` that means something here; [`FirecrackerConfig`] says
/// what.
const FIRECRACKER_NAMES: [&str; 10] = [
    "FIRECRACKER_BIN",
    "FIRECRACKER_INITRD",
    "FIRECRACKER_JAILER",
    "FIRECRACKER_JAILER_CHROOT_BASE",
    "FIRECRACKER_JAILER_GID",
    "FIRECRACKER_JAILER_UID",
    "FIRECRACKER_KERNEL",
    "FIRECRACKER_ROOT_DIRECTORY",
    "FIRECRACKER_ROOT_IMAGE",
    "FIRECRACKER_WORK_DIR",
];
/// Names that clients may use.
const HOSTS_ALLOW: &str = "HTTP_HOSTS_ALLOW";
/// What bodies may hold.
const BODIES_MAX: &str = "HTTP_BODIES_MAX";
/// Whether there are jobs.
const JOBS: &str = "JOBS";
/// The one token.
const TOKEN: &str = "AUTH_TOKEN";
/// The file of several.
const TOKENS_FILE: &str = "AUTH_TOKENS_FILE";

/// What the command line says of it; each beats the environment.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--addr HOST:PORT`.
    pub addr: Option<String>,
    /// `--workspace DIR`.
    pub workspace: Option<PathBuf>,
    /// `--langs DIR`.
    pub langs: Option<PathBuf>,
    /// `--rootfs DIR`.
    pub rootfs: Option<PathBuf>,
}

/// Which workspace a request runs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceChoice {
    /// Every slug uses this directory.
    Single(PathBuf),
    /// Each slug uses the directory of its name below this one.
    PerLanguage(PathBuf),
    /// Nothing was said: `./langs` per language if it exists, else `.` for all.
    Unset,
}

/// What becomes of a run whose client has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDisconnect {
    /// It is killed.
    Kill,
    /// It goes on to its end.
    Finish,
}

/// Where `GET /metrics` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsPlace {
    /// Beside `/run`.
    SamePort,
    /// Nowhere.
    Off,
    /// On a listener of its own.
    Own(SocketAddr),
}

/// What to do on a host that cannot enforce everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Do without what the host lacks, and say so.
    Best,
    /// Refuse to start.
    Strict,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// Words for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

impl LogFormat {
    /// The environment's word for it.
    pub const VARIABLE: &'static str = "LOG_FORMAT";

    /// The format of that name.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// The checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where to listen.
    pub address: SocketAddr,
    /// Whether `POST /shutdown` exists.
    pub allow_shutdown: bool,
    /// Runs at the same time, at least one.
    pub concurrency: usize,
    /// Boxes made ahead of runs; 0 for none.
    pub standby_max: usize,
    /// The longest request body; none for no limit.
    pub input_bytes_max: Option<u64>,
    /// The longest timeout a request may ask for.
    pub timeout_max: Duration,
    /// The bounds of a run before the language table and the request have their say.
    pub limits: Limits,
    /// Names of our own environment that user code sees.
    pub env_allow: Vec<String>,
    /// Directories of the root that every run may write to, in a layer of its own; none where
    /// nothing was said of them.
    pub writable_paths: Option<Vec<PathBuf>>,
    /// What becomes of a run whose client has gone.
    pub on_disconnect: OnDisconnect,
    /// How long a drain may take.
    pub shutdown_grace: Duration,
    /// Client connections at the same time, at least one.
    pub connections_max: usize,
    /// Origins whose pages may post, as browsers write them.
    pub origins_allow: Vec<String>,
    /// Names and bodies of the HTTP front.
    pub front: FrontConfig,
    /// Where `GET /metrics` is.
    pub metrics: MetricsPlace,
    /// What to do on a weak host.
    pub isolation: Isolation,
    /// Whether request headers are logged.
    pub debug: bool,
    /// How log lines are written.
    pub log_format: LogFormat,
    /// Which workspace a request runs in.
    pub workspaces: WorkspaceChoice,
    /// The root file system shown inside; the host's where none is given.
    pub rootfs: Option<PathBuf>,
    /// Agents' jobs.
    pub jobs: JobsConfig,
    /// The virtual machines that jobs may ask for; none where nothing was said of them.
    pub firecracker: Option<FirecrackerConfig>,
    /// Who may ask; everybody where there is none.
    pub tokens: Tokens,
    /// The file of tokens, which no run may see.
    pub tokens_file: Option<PathBuf>,
    /// What deserves a word at the start but not a refusal.
    pub warnings: Vec<String>,
}

/// Everything wrong with the configuration, one line a problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Problems(pub Vec<String>);

impl Problems {
    /// `value`, unless there is a problem.
    pub fn none_or<T>(self, value: T) -> Result<T, Self> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl Config {
    /// Reads `environment` (as of `std::env::vars_os`) and `overrides`. Where
    /// there are problems the configuration holds presets in their places.
    pub fn read(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
        overrides: &Overrides,
    ) -> (Self, Problems) {
        let mut raw = RawConfig { values: environment.into_iter().collect(), problems: Vec::new() };
        let config = raw.check(overrides);
        (config, Problems(raw.problems))
    }
}

/// The environment as it came, and what was found wrong with it so far.
struct RawConfig {
    values: BTreeMap<OsString, OsString>,
    problems: Vec<String>,
}

impl RawConfig {
    fn check(&mut self, overrides: &Overrides) -> Config {
        let address = self.address(overrides);
        let boxes_max = SANDBOXES_MAX as usize;
        let concurrency = self.figure("RUN_CONCURRENCY", WANTED_CONCURRENCY, 10, |text| {
            parse_count(text).filter(|count| *count <= boxes_max)
        });
        let (jobs, (tokens, token_warnings)) = (self.jobs(), self.tokens());
        let live = concurrency + if jobs.enabled { jobs.workers } else { 0 };
        // Every box has a host id of its own, and live ones come first.
        let standby_max = self
            .figure("STANDBY_MAX", WANTED_STANDBY, concurrency, |text| {
                parse_decimal(text).filter(|count| *count <= boxes_max)
            })
            .min(boxes_max.saturating_sub(live));
        Config {
            address,
            allow_shutdown: matches!(self.text("ALLOW_SHUTDOWN"), Some("1" | "true")),
            concurrency,
            standby_max,
            input_bytes_max: self.figure(
                "RUN_INPUT_MAX",
                "a byte count, or 0 for no limit",
                Some(1 << 20),
                parse_optional_bytes,
            ),
            timeout_max: self.figure(
                "RUN_TIMEOUT_MAX",
                "a duration above zero, as 30s or 5m",
                Duration::from_secs(300),
                |text| parse_figure(text).ok().filter(|duration| !duration.is_zero()),
            ),
            limits: self.limits(),
            env_allow: self.figure(
                "RUN_ENV_ALLOW",
                "names divided by commas or spaces",
                Vec::new(),
                parse_names,
            ),
            writable_paths: self.figure(
                "RUN_WRITABLE_PATHS",
                "absolute paths divided by colons",
                None,
                |text| parse_paths(text).map(Some),
            ),
            on_disconnect: self.figure(
                "RUN_ON_DISCONNECT",
                "kill or finish",
                OnDisconnect::Kill,
                |text| match text {
                    "kill" => Some(OnDisconnect::Kill),
                    "finish" => Some(OnDisconnect::Finish),
                    _ => None,
                },
            ),
            shutdown_grace: self.figure(
                "SHUTDOWN_GRACE",
                "a duration, as 500ms, 30s or 2m",
                Duration::from_secs(30),
                |text| parse_figure(text).ok(),
            ),
            connections_max: self.figure(
                "HTTP_CONNECTIONS_MAX",
                "a whole number from 1",
                1024,
                parse_count,
            ),
            origins_allow: self.figure(
                "HTTP_ORIGINS_ALLOW",
                "origins divided by commas, each as https://battle.example:8443 is written",
                Vec::new(),
                parse_origins,
            ),
            front: self.front(),
            metrics: self.figure(
                "METRICS_ADDR",
                "HOST:PORT, off, or nothing for the port of /run",
                MetricsPlace::SamePort,
                parse_metrics_place,
            ),
            isolation: self.figure(
                "ISOLATION",
                "best or strict",
                Isolation::Best,
                |text| match text {
                    "best" => Some(Isolation::Best),
                    "strict" => Some(Isolation::Strict),
                    _ => None,
                },
            ),
            debug: self.values.get(OsStr::new("DEBUG")).is_some_and(|v| v != "0" && v != "false"),
            log_format: self.figure(
                LogFormat::VARIABLE,
                "text or json",
                LogFormat::Text,
                LogFormat::parse,
            ),
            workspaces: self.workspaces(overrides),
            rootfs: overrides.rootfs.clone().or_else(|| self.path("SANDBOX_ROOTFS")),
            warnings: self.warnings().chain(jobs.warnings()).chain(token_warnings).collect(),
            jobs,
            firecracker: self.firecracker(),
            tokens,
            tokens_file: self.tokens_file(),
        }
    }

    fn address(&mut self, overrides: &Overrides) -> SocketAddr {
        let everywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let port = self.figure("PORT", "a port number", 4040, parse_decimal);
        let Some(addr) = &overrides.addr else { return (everywhere, port).into() };
        match parse_address(addr) {
            Some(address) => address,
            None => {
                self.problem("--addr", "HOST:PORT", addr);
                (everywhere, port).into()
            }
        }
    }

    fn limits(&mut self) -> Limits {
        const BYTES: &str = "a byte count above 0, as 512MiB";
        let preset = Limits::default();
        Limits {
            memory_bytes_max: self.figure(
                "RUN_MEMORY_MAX",
                BYTES,
                preset.memory_bytes_max,
                parse_some_bytes,
            ),
            processes_max: self.figure(
                "RUN_PIDS_MAX",
                "a whole number from 1",
                preset.processes_max,
                |text| parse_decimal(text).filter(|count| *count > 0),
            ),
            disk_bytes_max: self.figure(
                "RUN_DISK_MAX",
                BYTES,
                preset.disk_bytes_max,
                parse_some_bytes,
            ),
            file_bytes_max: self.figure(
                "RUN_FILE_MAX",
                BYTES,
                preset.file_bytes_max,
                parse_some_bytes,
            ),
            output_bytes_max: self.figure(
                "RUN_OUTPUT_MAX",
                "a byte count, or 0 for no limit",
                preset.output_bytes_max,
                parse_optional_bytes,
            ),
            cpus_milli_max: self.figure(
                "RUN_CPUS",
                "a number of CPUs above 0, as 1.5",
                preset.cpus_milli_max,
                |text| parse_cpus_milli(text).ok().map(Some),
            ),
            ..preset
        }
    }

    fn workspaces(&mut self, overrides: &Overrides) -> WorkspaceChoice {
        // Both are read in any case, so that a bad value is found in any case.
        let (single, per_language) = (self.path("RUN_WORKSPACE"), self.path("LANGS_DIR"));
        match (&overrides.workspace, &overrides.langs, single, per_language) {
            (Some(_), Some(langs), ..) => {
                let both = langs.display().to_string();
                self.problem("--langs", "no --workspace beside it", &both);
                WorkspaceChoice::Unset
            }
            (Some(workspace), None, ..) => WorkspaceChoice::Single(workspace.clone()),
            (None, Some(langs), ..) => WorkspaceChoice::PerLanguage(langs.clone()),
            (None, None, Some(workspace), _) => WorkspaceChoice::Single(workspace),
            (None, None, None, Some(langs)) => WorkspaceChoice::PerLanguage(langs),
            (None, None, None, None) => WorkspaceChoice::Unset,
        }
    }

    /// An orchestrator injects `RUN_*` names of its own, so a strange one is not a problem.
    fn warnings(&self) -> impl Iterator<Item = String> {
        let is_strange = |name: &str| {
            (name.starts_with("RUN_") && !RUN_NAMES.contains(&name))
                || (name.starts_with("JOBS_") && !JOBS_NAMES.contains(&name))
                || (name.starts_with("FIRECRACKER_") && !FIRECRACKER_NAMES.contains(&name))
        };
        let names = self.values.keys().map(|name| name.to_string_lossy());
        names
            .filter(move |name| is_strange(name))
            .map(|name| format!("{name}: not a variable of ours, ignored"))
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.values.get(OsStr::new(name)).and_then(|value| value.to_str())
    }

    fn path(&mut self, name: &str) -> Option<PathBuf> {
        let value = self.values.get(OsStr::new(name))?;
        if value.is_empty() {
            self.problem(name, "a directory", "");
            return None;
        }
        Some(PathBuf::from(value))
    }

    /// The value of `name`, or `preset` where it is not set or does not parse.
    fn figure<T>(
        &mut self,
        name: &str,
        want: &str,
        preset: T,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> T {
        let Some(value) = self.values.get(OsStr::new(name)) else { return preset };
        if let Some(figure) = value.to_str().and_then(parse) {
            return figure;
        }
        let got = value.to_string_lossy().into_owned();
        self.problem(name, want, &got);
        preset
    }

    fn problem(&mut self, name: &str, want: &str, got: &str) {
        self.problems.push(format!("{name}: want {want}, got {got:?}"));
    }
}

#[cfg(test)]
mod tests;
