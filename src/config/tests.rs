//! What the configuration takes and refuses.

use super::*;

fn read(pairs: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    read_with(pairs, &Overrides::default())
}

fn read_with(pairs: &[(&str, &str)], overrides: &Overrides) -> Result<Config, Vec<String>> {
    let environment = pairs.iter().map(|(name, value)| (name.into(), value.into()));
    let (config, problems) = Config::read(environment, overrides);
    problems.none_or(config).map_err(|problems| problems.0)
}

/// The same without jobs, engine, evaluations and Cases, whose sandboxes need host ids too.
fn read_without_jobs(pairs: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let off = ["JOBS", "ENGINE", "EVAL", "CASES"].map(|name| (name, "off"));
    read(&[pairs, &off].concat())
}

#[test]
fn an_empty_environment_gives_the_contract_s_defaults() {
    let config = read(&[]).unwrap();
    let expected = Config {
        address: "0.0.0.0:4040".parse().unwrap(),
        allow_shutdown: false,
        concurrency: 10,
        standby_max: 10,
        prestarted_max: 10,
        standby_memory_max: None,
        input_bytes_max: Some(1_048_576),
        timeout_max: Duration::from_secs(300),
        limits: Limits::default(),
        env_allow: vec![],
        writable_paths: None,
        on_disconnect: OnDisconnect::Kill,
        shutdown_grace: Duration::from_secs(30),
        connections_max: 1024,
        origins_allow: vec![],
        front: FrontConfig {
            hosts_allow: vec![],
            bodies_bytes_max: 64 << 20,
            attach_origins: vec![],
        },
        metrics: MetricsPlace::SamePort,
        isolation: Isolation::Best,
        debug: false,
        log_format: LogFormat::Text,
        workspaces: WorkspaceChoice::Unset,
        rootfs: None,
        jobs: config.jobs.clone(),
        engine: config.engine.clone(),
        evaluations: config.evaluations.clone(),
        cases: config.cases.clone(),
        firecracker: None,
        tokens: Tokens::default(),
        tokens_file: None,
        secrets: None,
        warnings: vec![],
    };
    assert_eq!(config, expected);
}

#[test]
fn every_variable_is_read() {
    let config = read(&[
        ("PORT", "8080"),
        ("ALLOW_SHUTDOWN", "true"),
        ("RUN_CONCURRENCY", "010"),
        ("STANDBY_MAX", "3"),
        ("STANDBY_MEMORY_MAX", "2GiB"),
        ("PRESTART", "off"),
        ("RUN_INPUT_MAX", "0"),
        ("RUN_OUTPUT_MAX", "64KiB"),
        ("RUN_TIMEOUT_MAX", "1.5m"),
        ("RUN_MEMORY_MAX", "1GiB"),
        ("RUN_PIDS_MAX", "64"),
        ("RUN_DISK_MAX", "10MiB"),
        ("RUN_FILE_MAX", "1MiB"),
        ("RUN_CPUS", "1.5"),
        ("RUN_ENV_ALLOW", "LANG, TZ,_x1 "),
        ("RUN_WRITABLE_PATHS", "/opt/a:/opt/b:"),
        ("RUN_ON_DISCONNECT", "finish"),
        ("SHUTDOWN_GRACE", "500ms"),
        ("HTTP_CONNECTIONS_MAX", "7"),
        ("HTTP_ORIGINS_ALLOW", "https://a.example, http://localhost:3000,"),
        ("HTTP_ORIGINS", "https://c.example"),
        ("HTTP_HOSTS_ALLOW", "battle.example, *.Runs.example,"),
        ("HTTP_BODIES_MAX", "1MiB"),
        ("METRICS_ADDR", "127.0.0.1:9464"),
        ("ISOLATION", "strict"),
        ("DEBUG", ""),
        ("LOG_FORMAT", "json"),
        ("RUN_WORKSPACE", "/w"),
        ("SANDBOX_ROOTFS", "/r"),
    ])
    .unwrap();
    assert_eq!(config.address.port(), 8080);
    assert!(config.allow_shutdown && config.debug);
    assert_eq!((config.concurrency, config.connections_max), (10, 7));
    assert_eq!((config.standby_max, config.prestarted_max), (3, 0));
    assert_eq!(config.standby_memory_max, Some(2 << 30));
    assert_eq!((config.input_bytes_max, config.timeout_max), (None, Duration::from_secs(90)));
    let limits = Limits {
        memory_bytes_max: 1 << 30,
        processes_max: 64,
        disk_bytes_max: 10 << 20,
        file_bytes_max: 1 << 20,
        output_bytes_max: Some(1 << 16),
        cpus_milli_max: Some(1500),
        ..Limits::default()
    };
    assert_eq!(config.limits, limits);
    assert_eq!(config.env_allow, ["LANG", "TZ", "_x1"]);
    assert_eq!(config.writable_paths, Some(vec!["/opt/a".into(), "/opt/b".into()]));
    assert_eq!(config.origins_allow, ["https://a.example", "http://localhost:3000"]);
    assert_eq!(config.front.hosts_allow, ["battle.example", "*.runs.example"]);
    assert_eq!(config.front.attach_origins, ["https://c.example"]);
    assert_eq!(config.front.bodies_bytes_max, 1 << 20);
    assert_eq!(config.on_disconnect, OnDisconnect::Finish);
    assert_eq!(config.shutdown_grace, Duration::from_millis(500));
    assert_eq!(config.metrics, MetricsPlace::Own("127.0.0.1:9464".parse().unwrap()));
    assert_eq!(config.isolation, Isolation::Strict);
    assert_eq!(config.log_format, LogFormat::Json);
    assert_eq!(config.workspaces, WorkspaceChoice::Single("/w".into()));
    assert_eq!(config.rootfs, Some("/r".into()));
}

#[test]
fn all_problems_are_reported_with_what_was_wanted() {
    let problems = read(&[
        ("PORT", "70000"),
        ("RUN_CONCURRENCY", "0"),
        ("RUN_MEMORY_MAX", "much"),
        ("RUN_WORKSPACE", ""),
    ]);
    assert_eq!(
        problems.unwrap_err(),
        [
            r#"PORT: want a port number, got "70000""#,
            r#"RUN_CONCURRENCY: want a whole number from 1 to 4096, got "0""#,
            r#"RUN_MEMORY_MAX: want a byte count above 0, as 512MiB, got "much""#,
            r#"RUN_WORKSPACE: want a directory, got """#,
        ]
    );
}

#[test]
fn malformed_values_refuse_the_start() {
    for (name, values) in [
        ("PORT", &["", "-1", "+80", "http", "65536"][..]),
        (
            "RUN_CONCURRENCY",
            &["", "0", "0x10", "a", "+1", " 1", "1.0", "4097", "99999999999999999999"],
        ),
        ("STANDBY_MEMORY_MAX", &["", "0", "-1", "some"]),
        ("PRESTART", &["", "1", "yes"]),
        ("STANDBY_MAX", &["", "-1", "all", "+1", "1.0", "4097"]),
        ("RUN_INPUT_MAX", &["", "-1", "1X"]),
        ("RUN_OUTPUT_MAX", &["", "x"]),
        ("RUN_TIMEOUT_MAX", &["", "0", "0s", "5x", "-1s"]),
        ("RUN_MEMORY_MAX", &["", "0"]),
        ("RUN_PIDS_MAX", &["", "0", "1K"]),
        ("RUN_DISK_MAX", &["0"]),
        ("RUN_FILE_MAX", &["0"]),
        ("RUN_CPUS", &["", "0", "0.000", "1.", ".", "1.2345", "-1", "1e3", "+1"]),
        ("RUN_ENV_ALLOW", &["A=B", "1A", "é"]),
        ("RUN_WRITABLE_PATHS", &["opt/a", "/opt/a:b", "/a, /b:c"]),
        ("RUN_ON_DISCONNECT", &["", "Kill", "stop"]),
        ("SHUTDOWN_GRACE", &["", "soon"]),
        ("HTTP_CONNECTIONS_MAX", &["0", ""]),
        (
            "HTTP_ORIGINS_ALLOW",
            &[
                "*",
                "null",
                "https://a.example/",
                "a.example",
                "https://a.example https://b.example",
            ],
        ),
        ("HTTP_HOSTS_ALLOW", &["*", "a.example:80", "10.0.0.1", "http://a.example", "a.example b"]),
        ("HTTP_BODIES_MAX", &["", "0", "1X"]),
        ("METRICS_ADDR", &["OFF", "9464", "no port", "127.0.0.1:70000"]),
        ("ISOLATION", &["", "STRICT"]),
        ("LOG_FORMAT", &["", "JSON", "logfmt", "json "]),
        ("LANGS_DIR", &[""]),
        ("SANDBOX_ROOTFS", &[""]),
        ("JOBS", &["", "ON", "yes", "1"]),
        ("JOBS_WORKERS", &["", "0", "4097", "all"]),
        ("JOBS_QUEUE_MAX", &["", "0", "100001", "-1"]),
        ("JOBS_STORE_DIR", &[""]),
        ("JOBS_WORKSPACE_ROOTS", &["", ":", "srv", "/srv:", "/srv:data", "/srv/../etc"]),
        ("JOBS_ALLOWED_ENV", &["A=B", "1A", "é"]),
        ("JOBS_INPUT_MAX", &["", "0", "1X"]),
        ("JOBS_RETENTION", &["", "0s", "7", "7d"]),
        ("JOBS_STORE_MAX", &["", "0", "much"]),
        ("JOBS_MAX_TIMEOUT_MS", &["", "0", "-1", "1d", "0.5ms"]),
        ("JOBS_MAX_MEMORY_BYTES", &["", "0", "1X"]),
        ("JOBS_MAX_RECORD_BYTES", &["65535", "1KiB"]),
        ("JOBS_MAX_ARTIFACT_COUNT", &["", "1K", "-1", "1.5"]),
        ("AUTH_TOKEN", &["two words", "t\u{f6}ken", "a\tb"]),
        ("AUTH_TOKENS_FILE", &["", "/dev/null", "/dev/null/nowhere", "/"]),
    ] {
        for value in values {
            let problems = read(&[(name, value)]).expect_err(&format!("{name}={value:?}"));
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].starts_with(&format!("{name}: want ")), "{problems:?}");
        }
    }
}

#[test]
fn as_many_sandboxes_are_prepared_as_runs_may_be_live_by_default() {
    for (pairs, standby_max) in [
        (&[("RUN_CONCURRENCY", "1")][..], 1),
        (&[("RUN_CONCURRENCY", "64")], 64),
        (&[("STANDBY_MAX", "0")], 0),
        (&[("STANDBY_MAX", "00")], 0),
        (&[("RUN_CONCURRENCY", "2"), ("STANDBY_MAX", "9")], 9),
        // There are 4096 host ids, and every sandbox needs one.
        (&[("STANDBY_MAX", "4096")], 4086),
        (&[("RUN_CONCURRENCY", "4000")], 96),
        (&[("RUN_CONCURRENCY", "4096")], 0),
        (&[("RUN_CONCURRENCY", "4096"), ("STANDBY_MAX", "1")], 0),
    ] {
        assert_eq!(read_without_jobs(pairs).unwrap().standby_max, standby_max, "{pairs:?}");
    }
    let beside_others = [
        ("RUN_CONCURRENCY", "4000"),
        ("JOBS_WORKERS", "72"),
        ("ENGINE_RUNS_MAX", "10"),
        // Each evaluation uses eight.
        ("MAX_CONCURRENT_EVALS", "1"),
        // Each Cell uses four.
        ("CASES_WORKERS", "1"),
    ];
    assert_eq!(read(&beside_others).unwrap().standby_max, 2);
}

#[test]
fn a_bad_number_of_prepared_sandboxes_says_what_was_wanted() {
    assert_eq!(
        read(&[("STANDBY_MAX", "some")]).unwrap_err(),
        [r#"STANDBY_MAX: want a whole number from 0 to 4096, got "some""#]
    );
}

#[test]
fn metrics_are_on_the_port_of_runs_by_default() {
    for (value, place) in [("", MetricsPlace::SamePort), ("off", MetricsPlace::Off)] {
        assert_eq!(read(&[("METRICS_ADDR", value)]).unwrap().metrics, place, "{value:?}");
    }
}

#[test]
fn only_the_two_words_allow_a_shutdown() {
    for (value, allowed) in [("1", true), ("true", true), ("TRUE", false), ("yes", false)] {
        assert_eq!(read(&[("ALLOW_SHUTDOWN", value)]).unwrap().allow_shutdown, allowed);
    }
}

#[test]
fn debug_is_on_unless_it_is_0_or_false() {
    for (value, on) in [("", true), ("1", true), ("no", true), ("0", false), ("false", false)] {
        assert_eq!(read(&[("DEBUG", value)]).unwrap().debug, on, "{value:?}");
    }
}

#[test]
fn an_unknown_name_with_a_known_prefix_is_a_warning() {
    let strange = [
        ("RUN_PORT_80_TCP", "tcp://10.0.0.1"),
        ("RUNNER", "x"),
        ("JOBS_MAX_MEMORY", "1"),
        ("FIRECRACKER_REQUIRED", "1"),
    ];
    let config = read(&strange).unwrap();
    assert_eq!(
        config.warnings,
        [
            "FIRECRACKER_REQUIRED: not a variable of ours, ignored",
            "JOBS_MAX_MEMORY: not a variable of ours, ignored",
            "RUN_PORT_80_TCP: not a variable of ours, ignored",
        ]
    );
}

#[test]
fn tokens_come_from_a_variable_and_a_file_and_short_ones_are_a_warning() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"# who\nci the-token-of-the-ci\nshort\n").unwrap();
    let path = file.path().to_str().unwrap();
    let config =
        read(&[("AUTH_TOKEN", "the-one-and-only-token"), ("AUTH_TOKENS_FILE", path)]).unwrap();
    let digest = cofferdam_core::values::digest::sha256_of(b"short");
    for (token, holder) in [
        ("the-one-and-only-token", Some("default")),
        ("the-token-of-the-ci", Some("ci")),
        ("short", Some(&digest[..16])),
        ("# who", None),
        ("ci", None),
    ] {
        let found = config.tokens.holder(token.as_bytes()).map(TokenName::as_str);
        assert_eq!(found, holder, "{token}");
    }
    assert_eq!(config.tokens_file, Some(path.into()));
    let told = "AUTH_TOKENS_FILE line 3: a token of fewer than 16 characters may be guessed";
    assert_eq!(config.warnings, [told]);
}

#[test]
fn no_problem_shows_a_token_and_no_run_may_see_one() {
    let problems = read(&[("AUTH_TOKEN", "secret token"), ("RUN_ENV_ALLOW", "LANG")]).unwrap_err();
    assert_eq!(problems, ["AUTH_TOKEN: want 1 to 1024 visible characters of ASCII"]);
    let allowed = [("AUTH_TOKEN", "the-one-and-only-token"), ("RUN_ENV_ALLOW", "LANG,AUTH_TOKEN")];
    let problems = read(&allowed).unwrap_err();
    assert_eq!(problems, ["RUN_ENV_ALLOW: want no AUTH_TOKEN, which no run may see"]);
}

#[test]
fn flags_beat_the_environment() {
    let overrides = Overrides {
        addr: Some("127.0.0.1:9".into()),
        langs: Some("/flag".into()),
        ..Overrides::default()
    };
    let config = read_with(&[("PORT", "1"), ("RUN_WORKSPACE", "/env")], &overrides).unwrap();
    assert_eq!(config.address, "127.0.0.1:9".parse().unwrap());
    assert_eq!(config.workspaces, WorkspaceChoice::PerLanguage("/flag".into()));
    let both = read(&[("RUN_WORKSPACE", "/w"), ("LANGS_DIR", "/l")]).unwrap();
    assert_eq!(both.workspaces, WorkspaceChoice::Single("/w".into()));
}

#[test]
fn flags_that_contradict_or_do_not_parse_are_problems() {
    let both = Overrides {
        workspace: Some("/w".into()),
        langs: Some("/l".into()),
        ..Overrides::default()
    };
    let problems = read_with(&[], &both).unwrap_err();
    assert_eq!(problems, [r#"--langs: want no --workspace beside it, got "/l""#]);
    let addr = Overrides { addr: Some("4040".into()), ..Overrides::default() };
    assert_eq!(read_with(&[], &addr).unwrap_err(), [r#"--addr: want HOST:PORT, got "4040""#]);
}
