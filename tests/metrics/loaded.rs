//! Metrics under full load, on their own listener, and during a drain.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{Client, post, request, solution};
use cofferdam_test_server::exposition::Exposition;
use cofferdam_test_server::service::{Service, Setup, best_of_three, wait_until};
use nix::sys::signal::Signal;

use crate::scrape;

const AT_ONCE: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_secs(10);

/// The address of the metrics listener, from the log.
fn metrics_address(service: &Service) -> SocketAddr {
    let log = service.log.wait_for("/metrics");
    let (_, rest) = log.split_once("metrics at http://").unwrap();
    rest.split_once("/metrics").unwrap().0.parse().unwrap()
}

#[test]
fn metrics_answer_within_100_ms_with_every_slot_busy() {
    let _alone = alone();
    let service = Setup::shell().env("RUN_CONCURRENCY", "2").start();
    let _busy = [0, 1].map(|_| service.live("while :; do :; done"));
    best_of_three(AT_ONCE, || {
        let start = Instant::now();
        assert_eq!(scrape(&service).get("cofferdam_slots_in_use", &[]), 2.0);
        start.elapsed()
    });
}

#[test]
fn a_metrics_listener_answers_when_every_connection_is_taken_and_during_a_drain() {
    let _alone = alone();
    let mut service = Setup::shell()
        .env("METRICS_ADDR", "127.0.0.1:0")
        .env("HTTP_CONNECTIONS_MAX", "3")
        .env("RUN_CONCURRENCY", "2")
        .start();
    assert_eq!(service.get("/metrics").status, 404);
    let address = metrics_address(&service);
    let scrape = || {
        let answer = Client::connect(address).ask(request("GET", "/metrics", ""));
        assert_eq!(answer.status, 200, "{answer:?}");
        Exposition::parse(&answer.body)
    };
    let mut busy = [0, 1].map(|_| {
        let mut client = service.connect();
        client.send(post("", solution("sleep 3; echo done").to_string()));
        client
    });
    wait_until("the runs", SOON, || scrape().get("cofferdam_slots_in_use", &[]) == 2.0);
    let _waiting: Vec<Client> = (0..9).map(|_| service.connect()).collect();
    wait_until("all connections", SOON, || scrape().get("cofferdam_connections", &[]) == 3.0);
    best_of_three(AT_ONCE, || {
        let start = Instant::now();
        assert_eq!(scrape().get("cofferdam_connections", &[]), 3.0);
        start.elapsed()
    });
    service.signal(Signal::SIGTERM);
    wait_until("the drain", SOON, || scrape().get("cofferdam_draining", &[]) == 1.0);
    for client in &mut busy {
        assert_eq!(client.answer().stdout(), "done\n");
    }
    assert_eq!(service.wait_end(SOON).code(), Some(0));
}

#[test]
fn an_unavailable_metrics_address_fails_the_start_and_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = Setup::shell().env("METRICS_ADDR", &address).refused();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&address), "{said}");
}

#[test]
fn disabled_metrics_are_not_served() {
    let service = Setup::shell().env("METRICS_ADDR", "off").start();
    assert_eq!(service.get("/metrics").status, 404);
    assert!(!service.log.text().contains("metrics at"), "{}", service.log.text());
}
