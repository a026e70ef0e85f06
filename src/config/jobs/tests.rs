//! What the configuration of jobs takes.

use super::super::{Config, Overrides};
use super::*;
use crate::egress::AllowList;

const MIB: u64 = 1 << 20;
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

fn read(pairs: &[(&str, &str)]) -> Config {
    let environment = pairs.iter().map(|(name, value)| (name.into(), value.into()));
    let (config, problems) = Config::read(environment, &Overrides::default());
    problems.none_or(config).unwrap()
}

fn hosts(entries: &[&str]) -> AllowList {
    AllowList::parse(&entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>()).unwrap()
}

#[test]
fn an_empty_environment_gives_the_contract_s_defaults() {
    let expected = JobsConfig {
        enabled: true,
        workers: available_parallelism().unwrap().get(),
        queue_max: 64,
        store_dir: "./agent-runner-runs".into(),
        workspace_roots: None,
        allowed_env: vec![],
        network: NetworkConfig { shared: shared(4 << 30), ..NetworkConfig::default() },
        followers_max: 64,
        input_bytes_max: 1 << 20,
        retention: None,
        store_bytes_max: None,
        maxima: MAXIMA,
    };
    assert_eq!(read(&[]).jobs, expected);
    for ((name, max), (_, preset)) in MAXIMA.named().into_iter().zip(JobLimits::default().named()) {
        assert!(max >= preset, "{name}");
    }
}

#[test]
fn every_variable_of_jobs_is_read() {
    let jobs = read(&[
        ("JOBS", "off"),
        ("JOBS_WORKERS", "3"),
        ("JOBS_QUEUE_MAX", "2000"),
        ("JOBS_STORE_DIR", "/var/lib/jobs"),
        ("JOBS_WORKSPACE_ROOTS", "/srv/a:/srv/b"),
        ("JOBS_ALLOWED_ENV", "LANG,TZ"),
        ("JOBS_NETWORK_HOSTS", "a.example, *.b.example:8443"),
        ("JOBS_HOSTS_ALLOW", "127.0.0.1:*"),
        ("EGRESS_BYTES_MAX", "1MiB"),
        ("JOBS_FOLLOWERS_MAX", "200"),
        ("JOBS_INPUT_MAX", "64KiB"),
        ("JOBS_RETENTION", "168h"),
        ("JOBS_STORE_MAX", "10GiB"),
    ])
    .jobs;
    let expected = JobsConfig {
        enabled: false,
        workers: 3,
        queue_max: 2000,
        store_dir: "/var/lib/jobs".into(),
        workspace_roots: Some(vec!["/srv/a".into(), "/srv/b".into()]),
        allowed_env: vec!["LANG".into(), "TZ".into()],
        network: NetworkConfig {
            hosts: hosts(&["a.example", "*.b.example:8443"]),
            private_hosts: hosts(&["127.0.0.1:*"]),
            shared: shared(1 << 20),
        },
        followers_max: 200,
        input_bytes_max: 1 << 16,
        retention: Some(Duration::from_secs(168 * 3600)),
        store_bytes_max: Some(10 << 30),
        maxima: MAXIMA,
    };
    assert_eq!(jobs, expected);
}

#[test]
fn every_limit_has_a_maximum_of_its_own_in_its_own_unit() {
    for (name, _) in MAXIMA.named() {
        let variable = format!("{MAXIMUM}{}", name.to_ascii_uppercase());
        let row = table::JOB_MAXIMA.variables.iter().find(|row| row.name == variable).unwrap();
        let least = format!("from {}", JobLimits::least(name));
        assert!(row.wanted.ends_with(&least), "{variable}");
        let (value, max) = match name {
            _ if name.ends_with("_bytes") => ("3GiB", 3 << 30),
            _ if name.ends_with("_ms") => ("1.5m", 90_000),
            _ => ("7", 7),
        };
        let mut expected = MAXIMA;
        *expected.named_mut(name).unwrap() = max;
        assert_eq!(read(&[(&variable, value)]).jobs.maxima, expected, "{variable}");
        *expected.named_mut(name).unwrap() = 987_654;
        assert_eq!(read(&[(&variable, "987654")]).jobs.maxima, expected, "{variable}");
    }
}

#[test]
fn a_maximum_below_the_default_of_requests_is_a_warning() {
    let config = read(&[("JOBS_MAX_MEMORY_BYTES", "64MiB"), ("JOBS_MAX_PROCESSES", "256")]);
    let told = "JOBS_MAX_MEMORY_BYTES: below 536870912: a request has to name memory_bytes";
    assert_eq!(config.warnings, [told]);
}

#[test]
fn without_roots_only_a_loopback_address_serves_any_path() {
    for (address, roots, expected) in [
        ("127.0.0.1:1", None, Roots::Any),
        ("127.9.9.9:1", None, Roots::Any),
        ("[::1]:1", None, Roots::Any),
        ("[::ffff:127.0.0.1]:1", None, Roots::Any),
        ("0.0.0.0:1", None, Roots::Only(vec![])),
        ("[::]:1", None, Roots::Only(vec![])),
        ("10.0.0.1:1", None, Roots::Only(vec![])),
        ("[::ffff:10.0.0.1]:1", None, Roots::Only(vec![])),
        ("127.0.0.1:1", Some("/srv"), Roots::Only(vec!["/srv".into()])),
        ("0.0.0.0:1", Some("/srv"), Roots::Only(vec!["/srv".into()])),
    ] {
        let pairs: Vec<_> =
            roots.map(|roots| ("JOBS_WORKSPACE_ROOTS", roots)).into_iter().collect();
        let jobs = read(&pairs).jobs;
        assert_eq!(roots_for(address.parse().unwrap(), &jobs), expected, "{address} {roots:?}");
    }
}

fn shared(bytes_max: u64) -> EgressConfig {
    EgressConfig { bytes_max, ..EgressConfig::default() }
}
