//! Metrics of runs, refusals and slots.

use std::collections::BTreeSet;
use std::time::Duration;

use cofferdam_test_server::client::{Answer, post, solution, solution_within};
use cofferdam_test_server::exposition::Exposition;
use cofferdam_test_server::service::{Service, Setup, wait_until};
use nix::sys::signal::Signal;

use crate::{figure, scrape};

/// A generous wait for a loaded machine.
const SOON: Duration = Duration::from_secs(10);
const PHASES: [&str; 4] = ["queue", "prepare", "run", "cleanup"];

fn runs(scraped: &Exposition, language: &str, outcome: &str) -> f64 {
    scraped.get("cofferdam_runs_total", &[("language", language), ("outcome", outcome)])
}

/// Asserts that a run of `script` under these limits is counted under `outcome` only.
#[track_caller]
fn assert_counted(service: &Service, outcome: &str, ask: impl FnOnce(&Service) -> Answer) {
    let before = scrape(service);
    let answer = ask(service);
    if let Some(word) = answer.header("x-run-outcome") {
        assert_eq!(word, outcome, "{answer:?}");
    }
    let after = scrape(service);
    let grown = runs(&after, "python", outcome) - runs(&before, "python", outcome);
    assert_eq!(grown, 1.0, "{outcome}: {answer:?}");
    let all = after.sum("cofferdam_runs_total") - before.sum("cofferdam_runs_total");
    assert_eq!(all, 1.0, "{outcome} was also counted as another outcome");
}

#[test]
fn a_run_is_counted_once_under_its_language_and_its_outcome() {
    let service = Setup::shell()
        .env("RUN_MEMORY_MAX", "64MiB")
        .env("RUN_PIDS_MAX", "16")
        .env("RUN_DISK_MAX", "4MiB")
        .start();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for (outcome, script) in [
        ("exited", "exit 3".to_owned()),
        ("signaled", "kill -9 $$".to_owned()),
        ("timed_out", "sleep 60".to_owned()),
        ("cpu_limit", "ulimit -St 1; while :; do :; done".to_owned()),
        ("memory_limit", "head -c 200000000 /dev/zero | tail -c 150000000 >/dev/null".to_owned()),
        (
            "process_limit",
            "for i in 1 2 3 4 5 6 7 8 9 a b c d e f g h; do sleep 60 & done".to_owned(),
        ),
        ("disk_limit", "head -c 6000000 /dev/zero >big || exit 7".to_owned()),
        ("output_limit", "yes".to_owned()),
        // More than its workspace can hold.
        ("not_started", format!("#{}", "x".repeat(900_000))),
    ] {
        let service = match outcome {
            "not_started" => &Setup::shell().env("RUN_DISK_MAX", "256KiB").start(),
            _ => &service,
        };
        let timeout = if outcome == "timed_out" { "300ms" } else { "20s" };
        let body = solution_within(timeout, &script);
        assert_counted(service, outcome, |service| service.post(&body));
        seen.insert(outcome);
    }
    // A run whose client disconnects.
    drop(service.live("sleep 60"));
    wait_until("its end", SOON, || runs(&scrape(&service), "python", "cancelled") == 1.0);
    seen.insert("cancelled");
    let scraped = scrape(&service);
    let all = scraped.all("cofferdam_runs_total");
    let outcomes: BTreeSet<&str> = all.map(|run| run.labels["outcome"].as_str()).collect();
    assert_eq!(seen, outcomes, "an outcome is not tested");
}

#[test]
fn every_phase_of_every_run_is_timed() {
    let service = Setup::shell().start();
    for _ in 0..5 {
        assert_eq!(service.run("sleep 0.3").status, 200);
    }
    let scraped = scrape(&service);
    for phase in PHASES {
        let of_phase = [("phase", phase)];
        assert_eq!(scraped.get("cofferdam_run_phase_seconds_count", &of_phase), 5.0, "{phase}");
        let buckets = scraped.all("cofferdam_run_phase_seconds_bucket");
        let counts: Vec<f64> =
            buckets.filter(|one| one.labels["phase"] == phase).map(|one| one.value).collect();
        assert!(counts.is_sorted() && counts.last() == Some(&5.0), "{phase}: {counts:?}");
        let sum = scraped.get("cofferdam_run_phase_seconds_sum", &of_phase);
        assert!(sum > 0.0 && (sum >= 1.5) == (phase == "run"), "{phase}: {sum}");
    }
    let below = |bound: &str| {
        let bucket = [("phase", "run"), ("le", bound)];
        scraped.get("cofferdam_run_phase_seconds_bucket", &bucket)
    };
    assert_eq!(below("0.25"), 0.0);
    assert!(below("10.0") == 5.0);
}

#[test]
fn no_client_input_creates_a_time_series() {
    let service = Setup::shell().start();
    let before = scrape(&service).series();
    let mut body = solution("true");
    for slug in ["perl", "python\"} 1\n", "exited", "..", "PYTHON", ""] {
        body["lang_slug"] = slug.into();
        assert_eq!(service.post(&body).status, 400, "{slug:?}");
    }
    service.get("/metrics/x?language=x");
    service.ask(post("x-request-id: mine\r\nuser-agent: me\r\n", solution("true").to_string()));
    assert_eq!(scrape(&service).series(), before);
}

#[test]
fn slots_in_use_are_reported_and_a_refusal_when_all_are_taken() {
    let service = Setup::shell().env("RUN_CONCURRENCY", "2").start();
    let slots = |service: &Service| {
        let scraped = scrape(service);
        (scraped.get("cofferdam_slots_in_use", &[]), scraped.get("cofferdam_slots", &[]))
    };
    assert_eq!(slots(&service), (0.0, 2.0));
    let first = service.live("sleep 60");
    assert_eq!(slots(&service), (1.0, 2.0));
    let second = service.live("sleep 60");
    assert_eq!(slots(&service), (2.0, 2.0));
    assert_eq!(service.run("true").status, 429);
    let busy = scrape(&service).get("cofferdam_refusals_total", &[("reason", "busy")]);
    assert_eq!(busy, 1.0);
    drop((first, second));
    wait_until("free slots", SOON, || slots(&service) == (0.0, 2.0));
}

#[test]
fn a_drain_is_reported_while_it_lasts() {
    let mut service = Setup::shell().start();
    assert_eq!(figure(&service, "cofferdam_draining"), 0.0);
    let mut live = service.connect();
    live.send(post("", solution("sleep 2; echo done").to_string()));
    wait_until("the run", SOON, || figure(&service, "cofferdam_slots_in_use") == 1.0);
    service.signal(Signal::SIGTERM);
    service.wait_draining();
    assert_eq!(service.run("true").status, 503);
    let scraped = scrape(&service);
    assert_eq!(scraped.get("cofferdam_draining", &[]), 1.0);
    assert_eq!(scraped.get("cofferdam_slots_in_use", &[]), 1.0);
    assert_eq!(scraped.get("cofferdam_refusals_total", &[("reason", "draining")]), 1.0);
    assert_eq!(live.answer().stdout(), "done\n");
    assert_eq!(service.wait_end(SOON).code(), Some(0));
}
