//! `GET /metrics` of the real binary: it has every metric in `docs/operations.md`, and every value
//! changes when it should. `make test-metrics` tests the same with Prometheus.
//!
//! `COFFERDAM_BIN` names another binary to test.

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

mod boxes;
mod documented;
mod engine;
mod jobs;
mod loaded;
mod runs;

use cofferdam_test_server::exposition::Exposition;
use cofferdam_test_server::service::Service;

/// The metrics that the service exposes now.
#[track_caller]
fn scrape(service: &Service) -> Exposition {
    let answer = service.get("/metrics");
    assert_eq!(answer.status, 200, "{answer:?}");
    Exposition::parse(&answer.body)
}

/// The value of a metric without labels.
#[track_caller]
fn figure(service: &Service, name: &str) -> f64 {
    scrape(service).get(name, &[])
}
