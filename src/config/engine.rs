//! The configuration of the code executor engine.

use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::Duration;

use super::network::{EgressConfig, NetworkConfig};
use super::parse::{
    parse_count, parse_decimal, parse_roots, parse_some_bytes, parse_some_duration, parse_switch,
};
use super::reader::VariableReader;
use super::table::{self, Variable};
use cofferdam_sandbox::engine::SANDBOXES_MAX;

/// Programs at once for each CPU.
const RUNS_PER_CPU: usize = 8;

/// Whether there is an engine, where its store is, and how much it may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Whether `/v1/workspaces` and its like exist.
    pub enabled: bool,
    /// Where everything that outlives the service is.
    pub store_dir: PathBuf,
    /// How much of everything there may be.
    pub maxima: EngineMaxima,
    /// What one token may have.
    pub per_token: TokenMaxima,
    /// The defaults and maxima of requests.
    pub requests: RequestRanges,
    /// How long things are kept.
    pub times: EngineTimes,
    /// Directories below which `host://` inputs may be, absolute.
    pub host_roots: Vec<PathBuf>,
    /// What programs may reach.
    pub network: NetworkConfig,
}

/// How much of everything there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineMaxima {
    /// Workspaces.
    pub workspaces: usize,
    /// Bytes of all workspaces and snapshots in memory; `None` for half of the memory.
    pub disk_total_bytes: Option<u64>,
    /// Programs at once.
    pub runs: usize,
    /// Live kernels.
    pub kernels: usize,
    /// Bytes of the store.
    pub store_bytes: u64,
    /// Sessions of one workspace.
    pub sessions: usize,
    /// Contexts of one workspace.
    pub contexts: usize,
    /// Snapshots.
    pub snapshots: usize,
    /// Bytes of a request in JSON.
    pub input_bytes: u64,
    /// Bytes of one version of an artifact.
    pub artifact_bytes: u64,
}

/// What one token may have; `None` for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenMaxima {
    /// Workspaces.
    pub workspaces: Option<usize>,
    /// Programs at once.
    pub runs: Option<usize>,
    /// Bytes of its workspaces.
    pub disk_bytes: Option<u64>,
}

/// What a request gets that names no value, and the most that it may name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestRange {
    /// The value of a request that names none, or 0.
    pub default: u64,
    /// The largest value.
    pub max: u64,
}

/// The ranges of the values that requests name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestRanges {
    /// Bytes of a workspace.
    pub disk_bytes: RequestRange,
    /// Files and directories of a workspace.
    pub inodes: RequestRange,
    /// How long a workspace lives, milliseconds.
    pub ttl_ms: RequestRange,
    /// How long an unused workspace lives, milliseconds.
    pub idle_ms: RequestRange,
    /// Wall-clock time of a program, milliseconds.
    pub run_timeout_ms: RequestRange,
    /// Wall-clock time of a session, milliseconds.
    pub session_timeout_ms: RequestRange,
    /// Memory of a program, MiB.
    pub memory_mb: RequestRange,
    /// Processes and threads of a program.
    pub pids: RequestRange,
    /// Bytes of each output stream.
    pub output_bytes: RequestRange,
}

/// How long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineTimes {
    /// A parked workspace.
    pub parked_keep: Duration,
    /// An ended session.
    pub session_keep: Duration,
    /// A change of a workspace with `persist` that is not saved.
    pub save_every: Duration,
}

impl EngineConfig {
    pub(super) fn read(reader: &mut VariableReader, egress: &EgressConfig) -> Self {
        Self {
            enabled: reader.value(&table::ENGINE, parse_switch),
            store_dir: reader.directory(&table::ENGINE_STORE_DIR).unwrap_or_default(),
            maxima: EngineMaxima::read(reader),
            per_token: TokenMaxima {
                workspaces: reader.optional(&table::ENGINE_TOKEN_WORKSPACES_MAX, parse_count),
                runs: reader.optional(&table::ENGINE_TOKEN_RUNS_MAX, parse_count),
                disk_bytes: reader.optional(&table::ENGINE_TOKEN_DISK_MAX, parse_some_bytes),
            },
            requests: RequestRanges::read(reader),
            times: EngineTimes {
                parked_keep: reader.value(&table::ENGINE_PARKED_KEEP, parse_some_duration),
                session_keep: reader.value(&table::ENGINE_SESSION_KEEP, parse_some_duration),
                save_every: reader.value(&table::ENGINE_SAVE_EVERY, parse_some_duration),
            },
            host_roots: reader.optional(&table::ENGINE_HOST_ROOTS, parse_roots).unwrap_or_default(),
            network: NetworkConfig::read(
                reader,
                [&table::ENGINE_NETWORK_HOSTS, &table::ENGINE_HOSTS_ALLOW],
                egress,
            ),
        }
    }

    /// Whether the operator chose where the store is.
    pub fn store_is_asked_for(&self) -> bool {
        table::ENGINE_STORE_DIR.default_value().map(Path::new) != Some(&self.store_dir)
    }

    /// How many workspaces there may be at once.
    pub fn workspaces(&self) -> usize {
        if self.enabled { self.maxima.workspaces } else { 0 }
    }

    /// How many sandboxes its programs may use at once.
    pub fn sandboxes(&self) -> usize {
        if self.enabled { self.maxima.runs } else { 0 }
    }
}

impl EngineMaxima {
    fn read(reader: &mut VariableReader) -> Self {
        let sandboxes_max = SANDBOXES_MAX as usize;
        let runs = reader.optional(&table::ENGINE_RUNS_MAX, |text| {
            parse_count(text).filter(|count| *count <= sandboxes_max)
        });
        let cpus = available_parallelism().map_or(1, usize::from);
        Self {
            workspaces: reader.value(&table::ENGINE_WORKSPACES_MAX, parse_count),
            disk_total_bytes: reader.optional(&table::ENGINE_DISK_TOTAL, parse_some_bytes),
            runs: runs.unwrap_or_else(|| cpus.saturating_mul(RUNS_PER_CPU).min(sandboxes_max)),
            kernels: reader.value(&table::ENGINE_KERNELS_MAX, parse_count),
            store_bytes: reader.value(&table::ENGINE_STORE_MAX, parse_some_bytes),
            sessions: reader.value(&table::ENGINE_SESSIONS_MAX, parse_count),
            contexts: reader.value(&table::ENGINE_CONTEXTS_MAX, parse_count),
            snapshots: reader.value(&table::ENGINE_SNAPSHOTS_MAX, parse_count),
            input_bytes: reader.value(&table::ENGINE_INPUT_MAX, parse_some_bytes),
            artifact_bytes: reader.value(&table::ENGINE_ARTIFACT_MAX, parse_some_bytes),
        }
    }
}

impl RequestRanges {
    fn read(reader: &mut VariableReader) -> Self {
        let mut read = |pair, parse| RequestRange::read(reader, pair, parse);
        Self {
            disk_bytes: read(
                [&table::ENGINE_DISK_DEFAULT, &table::ENGINE_DISK_MAX],
                parse_some_bytes,
            ),
            inodes: read(
                [&table::ENGINE_INODES_DEFAULT, &table::ENGINE_INODES_MAX],
                parse_some_number,
            ),
            ttl_ms: read([&table::ENGINE_TTL_DEFAULT, &table::ENGINE_TTL_MAX], parse_some_time),
            idle_ms: read([&table::ENGINE_IDLE_DEFAULT, &table::ENGINE_IDLE_MAX], parse_some_time),
            run_timeout_ms: read(
                [&table::ENGINE_RUN_TIMEOUT_DEFAULT, &table::ENGINE_RUN_TIMEOUT_MAX],
                parse_some_time,
            ),
            session_timeout_ms: read(
                [&table::ENGINE_SESSION_TIMEOUT_DEFAULT, &table::ENGINE_SESSION_TIMEOUT_MAX],
                parse_some_time,
            ),
            memory_mb: read(
                [&table::ENGINE_MEMORY_MB_DEFAULT, &table::ENGINE_MEMORY_MB_MAX],
                parse_some_number,
            ),
            pids: read([&table::ENGINE_PIDS_DEFAULT, &table::ENGINE_PIDS_MAX], parse_some_number),
            output_bytes: read(
                [&table::ENGINE_OUTPUT_DEFAULT, &table::ENGINE_OUTPUT_MAX],
                parse_some_bytes,
            ),
        }
    }
}

impl RequestRange {
    /// The values of a pair of variables. A default above the maximum is lowered to it, so that
    /// an operator who lowers a maximum need not set the default too.
    fn read(
        reader: &mut VariableReader,
        [default, max]: [&Variable; 2],
        parse: fn(&str) -> Option<u64>,
    ) -> Self {
        let max_value = reader.value(max, parse);
        let default_value = reader.value(default, parse);
        if default_value > max_value && reader.raw(default).is_some() {
            reader.problem(format!("{}: want at most {}", default.name, max.name));
        }
        Self { default: default_value.min(max_value), max: max_value }
    }
}

/// A number above 0.
fn parse_some_number(text: &str) -> Option<u64> {
    parse_decimal(text).filter(|number| *number > 0)
}

/// A duration of at least a millisecond, in milliseconds.
fn parse_some_time(text: &str) -> Option<u64> {
    let time = parse_some_duration(text)?;
    u64::try_from(time.as_millis()).ok().filter(|milliseconds| *milliseconds > 0)
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Overrides};
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (EngineConfig, Vec<String>) {
        let environment = pairs.iter().map(|(name, value)| (name.into(), value.into()));
        let (config, problems) = Config::read(environment, &Overrides::default());
        (config.engine, problems.0)
    }

    #[test]
    fn an_empty_environment_gives_the_defaults_of_the_contract() {
        let (config, problems) = read(&[]);
        assert_eq!(problems, [""; 0]);
        assert!(config.enabled);
        assert_eq!(config.store_dir, PathBuf::from("./cofferdam-engine"));
        let cpus = available_parallelism().unwrap().get();
        let maxima = EngineMaxima {
            workspaces: 1000,
            disk_total_bytes: None,
            runs: 8 * cpus,
            kernels: 64,
            store_bytes: 16 << 30,
            sessions: 32,
            contexts: 8,
            snapshots: 1000,
            input_bytes: 32 << 20,
            artifact_bytes: 256 << 20,
        };
        assert_eq!(config.maxima, maxima);
        assert_eq!(config.per_token, TokenMaxima::default());
        let range = |default, max| RequestRange { default, max };
        const HOUR_MS: u64 = 3_600_000;
        let ranges = RequestRanges {
            disk_bytes: range(256 << 20, 4 << 30),
            inodes: range(65_536, 1_000_000),
            ttl_ms: range(24 * HOUR_MS, 720 * HOUR_MS),
            idle_ms: range(HOUR_MS / 2, 24 * HOUR_MS),
            run_timeout_ms: range(10_000, HOUR_MS),
            session_timeout_ms: range(HOUR_MS / 2, 24 * HOUR_MS),
            memory_mb: range(768, 2048),
            pids: range(256, 1024),
            output_bytes: range(1 << 20, 16 << 20),
        };
        assert_eq!(config.requests, ranges);
        let times = EngineTimes {
            parked_keep: Duration::from_secs(720 * 3600),
            session_keep: Duration::from_secs(1800),
            save_every: Duration::from_secs(5),
        };
        assert_eq!(config.times, times);
        assert!(config.host_roots.is_empty());
    }

    #[test]
    fn a_lowered_maximum_lowers_the_default_and_a_default_above_it_is_refused() {
        let (config, problems) = read(&[("ENGINE_PIDS_MAX", "7")]);
        assert_eq!(problems, [""; 0]);
        assert_eq!(config.requests.pids, RequestRange { default: 7, max: 7 });
        let (_, problems) = read(&[("ENGINE_PIDS_MAX", "7"), ("ENGINE_PIDS_DEFAULT", "8")]);
        assert_eq!(problems, ["ENGINE_PIDS_DEFAULT: want at most ENGINE_PIDS_MAX"]);
    }

    #[test]
    fn values_that_are_none_are_refused() {
        for (name, value) in [
            ("ENGINE", "yes"),
            ("ENGINE_RUNS_MAX", "0"),
            ("ENGINE_RUNS_MAX", "4097"),
            ("ENGINE_DISK_TOTAL", "0"),
            ("ENGINE_TTL_MAX", "0s"),
            ("ENGINE_HOST_ROOTS", "relative"),
            ("ENGINE_MEMORY_MB_MAX", "1GiB"),
        ] {
            let (_, problems) = read(&[(name, value)]);
            assert!(problems.len() == 1 && problems[0].starts_with(name), "{problems:?}");
        }
    }
}
