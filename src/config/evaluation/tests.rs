//! What the configuration of evaluations takes and refuses.

use super::super::{Config, Overrides, Roots};
use super::*;

const MIB: u64 = 1 << 20;

fn read(pairs: &[(&str, &str)]) -> (EvaluationConfig, Vec<String>) {
    let environment = pairs.iter().map(|(name, value)| (name.into(), value.into()));
    let (config, problems) = Config::read(environment, &Overrides::default());
    (config.evaluations, problems.0)
}

#[test]
fn an_empty_environment_gives_the_defaults_of_the_contract() {
    let (config, problems) = read(&[]);
    assert_eq!(problems, [""; 0]);
    let expected = EvaluationConfig {
        enabled: true,
        capacity: 4,
        agent_code_bytes_max: 5_242_880,
        workspace_base: "/tmp/sessions".into(),
        rootfs_dir: None,
        repository_roots: vec![],
        sandbox: EvaluationSandbox {
            memory_bytes_max: 2048 * MIB,
            processes_max: 512,
            cpus_milli_max: None,
        },
        sizes: EvaluationSizes {
            disk_bytes_max: 2048 * MIB,
            base_bytes_max: 8192 * MIB,
            archive_bytes_max: 100 * MIB,
            unpacked_bytes_max: 1024 * MIB,
            repository_bytes_max: 4096 * MIB,
            patch_bytes_max: 10 * MIB,
            output_bytes_max: 1_048_576,
        },
        times: EvaluationTimes {
            session: Duration::from_secs(1800),
            clone: Duration::from_secs(120),
            install: Duration::from_secs(600),
            agent: Duration::from_secs(600),
            test: Duration::from_secs(300),
            retention: Duration::from_secs(168 * 3600),
        },
        cache: EvaluationCacheConfig { directory: None, bytes_max: 20_480 * MIB, is_shared: false },
        network: NetworkConfig {
            shared: EgressConfig { bytes_max: 4096 * MIB, ..EgressConfig::default() },
            ..NetworkConfig::default()
        },
        agent_network: None,
        install_network: config.install_network.clone(),
        clone_network: config.clone_network.clone(),
        network_files: Vec::new(),
        install_env: BTreeMap::new(),
        batch_max: 1000,
        batch_body_bytes_max: 64 * MIB,
        public: PublicRoutes { status: true, metrics: true },
    };
    assert_eq!(config, expected);
    for index in ["pypi.org", "registry.npmjs.org", "proxy.golang.org", "rubygems.org"] {
        assert!(config.install_network.allow.iter().any(|entry| entry == index), "{index}");
    }
}

#[test]
fn values_that_are_none_are_refused_by_the_name_of_their_variable() {
    for (name, value) in [
        ("EVAL", "yes"),
        ("MAX_CONCURRENT_EVALS", "0"),
        ("MAX_CONCURRENT_EVALS", "257"),
        ("SESSION_TTL_SECS", "0"),
        ("AGENT_TIMEOUT_SECS", "10s"),
        ("TEST_TIMEOUT_SECS", "31536001"),
        ("DISK_QUOTA_MB", "0"),
        ("DISK_QUOTA_MB", "1GiB"),
        ("WORKSPACE_BASE", "relative"),
        ("MAX_OUTPUT_BYTES", "0"),
        ("EVAL_RETENTION", "0s"),
        ("AUTH_PUBLIC", "health"),
        ("AUTH_PUBLIC", ""),
        ("CACHE_SHARED", "1"),
        ("EVAL_REPO_ROOTS", "relative"),
        ("EVAL_CPUS", "0"),
        ("EVAL_AGENT_HOSTS", "http://a.example"),
        ("EVAL_INSTALL_ENV", "9=1"),
        ("EVAL_INSTALL_ENV", "NOT_SET_ANYWHERE"),
        ("EVAL_AGENT_NETWORK", r#"{"rules": []}"#),
        ("EVAL_AGENT_NETWORK", r#"{"allow": ["a.example"]}"#),
        ("EVAL_AGENT_NETWORK", "/nonexistent/network.json"),
        ("EVAL_INSTALL_NETWORK", r#"{"allow": ["a.example"]}"#),
        ("EVAL_INSTALL_NETWORK", r#"{"rules": {"a.example": []}}"#),
        ("EVAL_CLONE_NETWORK", r#"{"allow": "a.example"}"#),
        ("EVAL_CLONE_NETWORK", r#"{"rules": [{"host": "a.example"}]}"#),
    ] {
        let (_, problems) = read(&[(name, value)]);
        assert!(problems.len() == 1 && problems[0].starts_with(name), "{value}: {problems:?}");
    }
}

#[test]
fn a_network_object_narrows_the_hosts_and_comes_from_a_file_too() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"allow:\n- a.example:8443\n").unwrap();
    let (config, problems) = read(&[
        ("EVAL_AGENT_HOSTS", "b.example, *.example:*"),
        ("EVAL_AGENT_NETWORK", file.path().to_str().unwrap()),
        ("EVAL_INSTALL_NETWORK", r#"{"allow": ["pypi.org"]}"#),
    ]);
    assert_eq!(problems, [""; 0]);
    assert_eq!(config.agent_network.unwrap().allow, ["a.example:8443"]);
    assert_eq!(config.install_network.allow, ["pypi.org"]);
    assert_eq!(config.clone_network, NetworkObject::default());
    assert_eq!(config.network_files, [file.path()]);
}

#[test]
fn install_and_git_have_rules_and_no_problem_tells_a_secret() {
    let (config, problems) = read(&[
        ("EVAL_INSTALL_HOSTS", "*.example"),
        ("EVAL_INSTALL_NETWORK", r#"{"rules": {"index.example": [{"methods": ["GET"]}]}}"#),
        (
            "EVAL_CLONE_NETWORK",
            r#"{"rules": {"git.example": [{"headers": {"authorization": "Bearer {{secret.git}}"}}]},
                "secrets": {"git": {}}}"#,
        ),
    ]);
    assert_eq!(problems, [""; 0]);
    assert!(config.install_network.rules.contains_key("index.example"));
    assert!(config.clone_network.rules.contains_key("git.example"));
    let wrong = r#"{"secrets": {"git": "do-not-show-me"}}"#;
    for name in ["EVAL_AGENT_NETWORK", "EVAL_INSTALL_NETWORK", "EVAL_CLONE_NETWORK"] {
        let (_, problems) = read(&[(name, wrong)]);
        let expected = format!("{name}: secrets.git");
        assert!(problems.len() == 1 && problems[0].starts_with(&expected), "{problems:?}");
        assert!(!problems[0].contains("do-not-show-me"), "{problems:?}");
    }
}

#[test]
fn variables_of_install_have_their_value_or_that_of_the_service() {
    let (config, problems) = read(&[
        ("EVAL_INSTALL_ENV", "PIP_RETRIES=2, GOPROXY EMPTY="),
        ("GOPROXY", "https://a.example,direct"),
    ]);
    assert_eq!(problems, [""; 0]);
    let expected = [("EMPTY", ""), ("GOPROXY", "https://a.example,direct"), ("PIP_RETRIES", "2")];
    let found: Vec<_> = config.install_env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn what_needs_no_token_is_a_list_or_none() {
    for (text, status, metrics) in [
        ("status,metrics", true, true),
        ("metrics , status", true, true),
        ("status", true, false),
        ("metrics", false, true),
        ("none", false, false),
    ] {
        let (config, _) = read(&[("AUTH_PUBLIC", text)]);
        assert_eq!(config.public, PublicRoutes { status, metrics }, "{text}");
    }
}

fn read_cases(pairs: &[(&str, &str)]) -> (Config, Vec<String>) {
    let environment = pairs.iter().map(|(name, value)| (name.into(), value.into()));
    let (config, problems) = Config::read(environment, &Overrides::default());
    (config, problems.0)
}

#[test]
fn cases_over_http_have_the_defaults_of_the_contract_and_reach_nothing() {
    let (config, problems) = read_cases(&[]);
    assert_eq!(problems, [""; 0]);
    let cases = config.cases;
    assert!(cases.enabled && cases.workers >= 1 && cases.harness_env.is_empty());
    assert_eq!((cases.queue_max, cases.input_bytes_max), (64, 64 * MIB));
    assert_eq!(cases.all.cache_bytes_max, 20_480 * MIB);
    assert!(
        cases.egress_hosts.entries().is_empty() && cases.all.private_hosts.entries().is_empty()
    );
}

#[test]
fn cases_are_below_their_own_roots_else_below_those_of_jobs() {
    let local = "127.0.0.1:4040".parse().unwrap();
    let all = "0.0.0.0:4040".parse().unwrap();
    let only = |paths: &[&str]| Roots::Only(paths.iter().map(PathBuf::from).collect());
    for (pairs, address, roots) in [
        (&[][..], local, Roots::Any),
        (&[], all, only(&[])),
        (&[("JOBS_WORKSPACE_ROOTS", "/a")], local, only(&["/a"])),
        (&[("JOBS_WORKSPACE_ROOTS", "/a"), ("CASES_ROOTS", "/b:/c")], all, only(&["/b", "/c"])),
    ] {
        let (config, _) = read_cases(pairs);
        assert_eq!(config.cases.roots_for(address, &config.jobs), roots, "{pairs:?}");
    }
}

#[test]
fn malformed_values_of_cases_refuse_the_start() {
    for (name, values) in [
        ("CASES", &["", "yes", "1"][..]),
        ("CASES_ROOTS", &["", "relative", "/a/../b"]),
        ("CASES_WORKERS", &["", "0", "257", "+1"]),
        ("CASES_QUEUE_MAX", &["0", "100001"]),
        ("CASES_INPUT_MAX", &["0", "much"]),
        ("CASES_CACHE_MAX", &["0", "-1"]),
        ("CASES_EGRESS_ALLOW", &["http://a.example", "a b"]),
        ("CASES_HOSTS_ALLOW", &["10.0.0.0/33"]),
        ("CASES_HARNESS_ENV", &["1A", "A=B"]),
    ] {
        for value in values {
            let (_, problems) = read_cases(&[(name, value)]);
            assert!(
                problems.iter().any(|one| one.starts_with(name)),
                "{name}={value}: {problems:?}"
            );
        }
    }
}
