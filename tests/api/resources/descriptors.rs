//! The limit of open files: the server gets as many as its connections and sandboxes need, a tenant
//! gets no more.

use std::fs;
use std::time::Duration;

use cofferdam_test_server::client::Client;
use cofferdam_test_server::exposition::Exposition;
use cofferdam_test_server::service::{Service, Setup, wait_until};

/// The soft and the hard limit of open files of a server.
fn limits(service: &Service) -> (u64, u64) {
    let limits = fs::read_to_string(format!("/proc/{}/limits", service.pid())).unwrap();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut figures = line.split_whitespace().map(|figure| figure.parse().unwrap());
    (figures.next().unwrap(), figures.next().unwrap())
}

/// How many connections the server accepts at once, by its own metric.
fn connections_max(service: &Service) -> f64 {
    let scraped = Exposition::parse(&service.get("/metrics").body);
    scraped.get("cofferdam_connections_max", &[])
}

#[test]
fn the_server_raises_its_own_limit_of_open_files_but_not_that_of_sandboxes() {
    for (options, soft) in [
        // 64 for the server, 32 for each of 10 runs, 24 for each of 10 prepared and of 10 warm sandboxes, and 700.
        ("-Sn 256", 1564),
        ("-Sn 1564", 1564),
        ("-Sn 2000", 2000),
    ] {
        let setup = Setup::shell()
            .env("HTTP_CONNECTIONS_MAX", "700")
            .env("STANDBY_MAX", "10")
            .env("JOBS", "off")
            .env("ENGINE", "off");
        let service = setup.with_limits(&format!("{options} && ulimit -Hn 4000")).start();
        assert_eq!(limits(&service), (soft, 4000), "{options}");
        assert_eq!(connections_max(&service), 700.0, "{options}");
        assert!(!service.log.text().contains("open files"), "{}", service.log.text());
        // In a new sandbox and in a prepared one.
        for _ in 0..3 {
            assert_eq!(service.run("ulimit -Sn; ulimit -Hn").stdout(), "256\n256\n", "{options}");
        }
    }
}

#[test]
fn more_connections_than_the_initial_limit_are_served_at_once() {
    let service = Setup::shell().with_limits("-Sn 256").start();
    let connected: Vec<Client> = (0..500).map(|_| service.connect()).collect();
    let open = || {
        let scraped = Exposition::parse(&service.get("/metrics").body);
        scraped.get("cofferdam_connections", &[])
    };
    wait_until("all connections", Duration::from_secs(10), || open() > connected.len() as f64);
    assert_eq!(service.run("echo hi").stdout(), "hi\n");
}

#[test]
fn a_hard_limit_that_is_too_low_is_logged_with_the_connections_it_allows() {
    let setup = Setup::shell().env("STANDBY_MAX", "10").env("PRESTART", "off");
    let setup = setup.env("JOBS", "off").env("ENGINE", "off");
    let service = setup.with_limits("-n 800").start();
    assert_eq!(limits(&service), (800, 800));
    assert_eq!(connections_max(&service), 176.0);
    let said = "open files: 1648 are needed for 1024 connections besides the sandboxes and workspaces, \
                and the hard limit is 800: 176 connections are served at once";
    service.log.wait_for(said);
    assert_eq!(service.run("ulimit -n").stdout(), "256\n");
}
