//! What the environment says of agents' jobs.

use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use super::values::{parse_count, parse_decimal, parse_names, parse_some_bytes};
use super::{JOBS, RawConfig};
use cofferdam_core::job::JobLimits;
use cofferdam_core::values::bytes::parse_bytes;
use cofferdam_core::values::duration::parse_figure;
use cofferdam_sandbox::SANDBOXES_MAX;

const MIB: u64 = 1 << 20;

/// The most jobs that may wait, whatever is wished for: each holds its request in memory.
const QUEUE_MAX: usize = 100_000;
/// Where records are kept.
const STORE_DIR: &str = "./agent-runner-runs";
/// What the largest limits are where nothing is said of them: an hour by the clock, four of CPU
/// time, and of all else four times what a request has that names none.
const MAXIMA: JobLimits = JobLimits {
    timeout_ms: 3_600_000,
    cpu_time_ms: 14_400_000,
    memory_bytes: 2048 * MIB,
    processes: 1024,
    disk_bytes: 1024 * MIB,
    stdout_bytes: 4 * MIB,
    stderr_bytes: 4 * MIB,
    artifact_count: 400,
    artifact_file_bytes: 16 * MIB,
    artifact_total_bytes: 256 * MIB,
    record_bytes: 16 * MIB,
    snapshot_files: 400_000,
    snapshot_bytes: 4096 * MIB,
};

/// Whether there are jobs, how many, where, and how much each may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobsConfig {
    /// Whether `/v1/jobs` exists.
    pub enabled: bool,
    /// Jobs that run at the same time, at least one.
    pub workers: usize,
    /// Jobs that may wait, at least one.
    pub queue_max: usize,
    /// Where records are kept.
    pub store_dir: PathBuf,
    /// Where workspaces may be, absolute; none where nothing was said.
    pub workspace_roots: Option<Vec<PathBuf>>,
    /// Names of variables that any job may set, beside what its own policy allows.
    pub allowed_env: Vec<String>,
    /// Clients that may follow jobs' events at the same time, at least one.
    pub followers_max: usize,
    /// The longest request, bytes.
    pub input_bytes_max: u64,
    /// How long the record of an ended job is kept; none for ever.
    pub retention: Option<Duration>,
    /// How much all records may hold, bytes; none for no limit.
    pub store_bytes_max: Option<u64>,
    /// The largest limits a request may name.
    pub maxima: JobLimits,
}

/// Where workspaces may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roots {
    /// Anywhere the service can read.
    Any,
    /// Below one of these.
    Only(Vec<PathBuf>),
}

/// Where the workspaces of a service that listens on `address` may be: where the operator says,
/// else anywhere for clients of this host and nowhere for all others.
pub fn roots_for(address: SocketAddr, config: &JobsConfig) -> Roots {
    match &config.workspace_roots {
        Some(roots) => Roots::Only(roots.clone()),
        None if address.ip().to_canonical().is_loopback() => Roots::Any,
        None => Roots::Only(Vec::new()),
    }
}

impl JobsConfig {
    /// Whether somebody has said where records are to be kept.
    pub fn store_is_asked_for(&self) -> bool {
        self.store_dir != Path::new(STORE_DIR)
    }

    /// Requests that name no limit have the presets, which a maximum below them refuses.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> + use<> {
        let presets = JobLimits::default().named();
        let below = self.maxima.named().into_iter().zip(presets);
        below.filter(|((_, max), (_, preset))| max < preset).map(|((name, _), (_, preset))| {
            format!("{}: below {preset}: a request has to name {name}", variable(name))
        })
    }
}

/// The variable of the largest `limit`.
fn variable(limit: &str) -> String {
    format!("JOBS_MAX_{}", limit.to_ascii_uppercase())
}

impl RawConfig {
    pub(super) fn jobs(&mut self) -> JobsConfig {
        const BYTES: &str = "a byte count above 0, as 512MiB";
        let boxes_max = SANDBOXES_MAX as usize;
        JobsConfig {
            enabled: self.figure(JOBS, "on or off", true, |text| match text {
                "on" => Some(true),
                "off" => Some(false),
                _ => None,
            }),
            workers: self.figure(
                "JOBS_WORKERS",
                "a whole number from 1 to 4096",
                cores(),
                |text| parse_count(text).filter(|count| *count <= boxes_max),
            ),
            queue_max: self.figure(
                "JOBS_QUEUE_MAX",
                "a whole number from 1 to 100000",
                64,
                |text| parse_count(text).filter(|count| *count <= QUEUE_MAX),
            ),
            store_dir: self.path("JOBS_STORE_DIR").unwrap_or_else(|| STORE_DIR.into()),
            workspace_roots: self.figure(
                "JOBS_WORKSPACE_ROOTS",
                "absolute directories divided by colons",
                None,
                |text| parse_roots(text).map(Some),
            ),
            allowed_env: self.figure(
                "JOBS_ALLOWED_ENV",
                "names divided by commas or spaces",
                Vec::new(),
                parse_names,
            ),
            followers_max: self.figure(
                "JOBS_FOLLOWERS_MAX",
                "a whole number from 1",
                64,
                parse_count,
            ),
            input_bytes_max: self.figure("JOBS_INPUT_MAX", BYTES, MIB, parse_some_bytes),
            retention: self.figure(
                "JOBS_RETENTION",
                "a duration above zero, as 90m or 168h",
                None,
                |text| parse_figure(text).ok().filter(|duration| !duration.is_zero()).map(Some),
            ),
            store_bytes_max: self
                .figure("JOBS_STORE_MAX", BYTES, None, |text| parse_some_bytes(text).map(Some)),
            maxima: self.maxima(),
        }
    }

    fn maxima(&mut self) -> JobLimits {
        let mut maxima = MAXIMA;
        for (name, preset) in MAXIMA.named() {
            let least = JobLimits::least(name);
            let (want, parse) = kind_of(name);
            let want = format!("{want} from {least}");
            let max = self.figure(&variable(name), &want, preset, |text| {
                parse(text).filter(|max| *max >= least)
            });
            if let Some(limit) = maxima.named_mut(name) {
                *limit = max;
            }
        }
        maxima
    }
}

/// What the limit `name` is counted in, by the unit in its name, and how that is read.
fn kind_of(name: &str) -> (&'static str, fn(&str) -> Option<u64>) {
    if name.ends_with("_bytes") {
        ("a byte count, as 512MiB,", |text| parse_bytes(text).ok())
    } else if name.ends_with("_ms") {
        ("milliseconds, or a duration as 90s or 1h,", parse_milliseconds)
    } else {
        ("a whole number", parse_decimal)
    }
}

fn parse_milliseconds(text: &str) -> Option<u64> {
    let duration = || u64::try_from(parse_figure(text).ok()?.as_millis()).ok();
    parse_decimal(text).or_else(duration)
}

/// Directories divided by colons, each absolute and without `..`.
fn parse_roots(text: &str) -> Option<Vec<PathBuf>> {
    let is_plain = |root: &Path| {
        root.is_absolute() && root.components().all(|part| part != Component::ParentDir)
    };
    let roots = text.split(':').map(PathBuf::from);
    roots.map(|root| is_plain(&root).then_some(root)).collect()
}

/// The CPUs that this process may use.
fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests;
