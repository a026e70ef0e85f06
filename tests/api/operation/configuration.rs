//! Environment variables and flags: which values prevent the start, which only warn, and what is
//! logged.

use std::net::TcpListener;

use cofferdam_test_server::client::request;
use cofferdam_test_server::service::Setup;

/// A port that was free just now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn every_invalid_variable_is_reported_and_prevents_the_start() {
    let bad = [
        ("PORT", "65536"),
        ("RUN_CONCURRENCY", "0"),
        ("RUN_INPUT_MAX", "-1"),
        ("RUN_OUTPUT_MAX", "1 MiB"),
        ("RUN_TIMEOUT_MAX", "0s"),
        ("RUN_MEMORY_MAX", "lots"),
        ("RUN_PIDS_MAX", "0"),
        ("RUN_DISK_MAX", "0"),
        ("RUN_FILE_MAX", ""),
        ("RUN_CPUS", "0"),
        ("RUN_ENV_ALLOW", "A=B"),
        ("RUN_ON_DISCONNECT", "maybe"),
        ("SHUTDOWN_GRACE", "soon"),
        ("HTTP_CONNECTIONS_MAX", "0"),
        ("ISOLATION", "none"),
    ];
    let (code, said) =
        bad.iter().fold(Setup::shell(), |setup, (name, value)| setup.env(name, value)).refused();
    assert_eq!(code, Some(2), "{said}");
    for (name, _) in bad {
        assert_eq!(said.matches(name).count(), 1, "{name}: {said}");
    }
    for (name, value) in bad {
        let (code, said) = Setup::shell().env(name, value).refused();
        assert_eq!(code, Some(2), "{name}={value}: {said}");
    }
}

#[test]
fn a_malformed_flag_is_a_usage_error() {
    for args in [&["--addr", "nowhere"][..], &["--no-such-flag"], &["--langs", "/tmp"], &["extra"]]
    {
        let setup = args.iter().fold(Setup::shell(), Setup::arg);
        let (code, said) = setup.refused();
        assert_eq!(code, Some(2), "{args:?}: {said}");
        assert!(!said.trim().is_empty(), "{args:?}");
    }
}

#[test]
fn an_unknown_run_variable_is_a_warning() {
    let service = Setup::shell().env("RUN_CONCURENCY", "3").env("OTHER", "x").start();
    let log = service.log.wait_for("RUN_CONCURENCY");
    assert!(!log.contains("OTHER"), "{log}");
}

#[test]
fn a_flag_overrides_the_port_of_the_environment() {
    let port = free_port();
    let service = Setup::shell().without_addr().env("PORT", port.to_string()).start();
    assert_eq!(service.address.port(), port);
    drop(service);
    let service = Setup::shell().env("PORT", port.to_string()).start();
    assert_ne!(service.address.port(), port);
}

#[test]
fn a_port_in_use_is_a_failure_and_one_in_time_wait_is_not() {
    let holder = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let (code, said) = Setup::shell().without_addr().env("PORT", &port).refused();
    assert_eq!(code, Some(1), "{said}");
    drop(holder);
    // Connections of the previous server are still in TIME_WAIT.
    for _ in 0..2 {
        let service = Setup::shell().without_addr().env("PORT", &port).start();
        service.get("/health").assert_text(200, "ok\n");
    }
}

#[test]
fn the_ready_line_names_the_enforced_controls() {
    let service = Setup::shell().start();
    let log = service.log.text();
    let ready = log.lines().find(|line| line.contains(&service.address.to_string())).unwrap();
    for control in ["seccomp", "pid", "memory"] {
        assert!(ready.contains(control), "{control}: {ready}");
    }
}

#[test]
fn request_headers_are_logged_only_under_debug_and_secret_ones_never() {
    let ask = request("GET", "/health", "authorization: Bearer s3cret\r\nx-trace: tr4ce\r\n");
    for (debug, logged) in [
        (Some(""), true),
        (Some("1"), true),
        (Some("0"), false),
        (Some("false"), false),
        (None, false),
    ] {
        let mut setup = Setup::shell();
        if let Some(debug) = debug {
            setup = setup.env("DEBUG", debug);
        }
        let mut service = setup.start();
        service.ask(&ask).assert_text(200, "ok\n");
        service.stop();
        let log = service.log.text();
        assert_eq!(log.contains("tr4ce"), logged, "DEBUG={debug:?}: {log}");
        assert!(!log.contains("s3cret"), "{log}");
    }
}

#[test]
fn strict_isolation_refuses_a_host_that_lacks_a_control() {
    let lacks = Setup::shell().start().log.text().contains("not enforced");
    let strict = Setup::shell().env("ISOLATION", "strict");
    if lacks {
        let (code, said) = strict.refused();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("strict isolation"), "{said}");
    } else {
        assert_eq!(strict.start().run("echo hi").stdout(), "hi\n");
    }
}
