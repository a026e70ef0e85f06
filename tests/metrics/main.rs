//! `GET /metrics` of the real binary: what `docs/operations.md` says is there, is there, and every
//! figure moves when it should. `make test-metrics` holds the same to Prometheus itself.
//!
//! `COFFERDAM_BIN` names another binary to hold to the same guarantees.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

mod boxes;
mod documented;
mod jobs;
mod loaded;
mod runs;

use cofferdam_test_server::exposition::Exposition;
use cofferdam_test_server::service::Service;

/// What the service exposes now.
#[track_caller]
fn scrape(service: &Service) -> Exposition {
    let answer = service.get("/metrics");
    assert_eq!(answer.status, 200, "{answer:?}");
    Exposition::parse(&answer.body)
}

/// One figure without labels.
#[track_caller]
fn figure(service: &Service, name: &str) -> f64 {
    scrape(service).get(name, &[])
}
