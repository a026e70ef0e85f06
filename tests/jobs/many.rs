//! A long queue: each job gets exactly one result, memory stays flat, lists and events stay quick.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::host;
use cofferdam_test_server::service::wait_until;
use cofferdam_test_support::has;
use nix::unistd::geteuid;
use serde_json::Value;
use tempfile::TempDir;

use crate::doors::{job_server, post_job, post_to};
use crate::workspace::{Workspace, with};

/// The number of jobs in the suite; `make soak-jobs` runs more.
const JOBS: &str = "JOBS_MANY";
const JOBS_DEFAULT: usize = 150;
/// The number in the guarantee.
const WORKERS: usize = 8;
/// The time allowed for each job on a loaded machine.
const PATIENCE_PER_JOB: Duration = Duration::from_millis(500);
/// The 99th percentile of the time to a list or the first event of a stream.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);
/// The allowed growth of memory over all jobs: the index and the allocator's slack.
const GROWTH_BYTES_MAX: u64 = 24 << 20;

/// The 99th percentile.
fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len().saturating_sub(1) * 99 / 100]
}

#[test]
fn a_long_queue_gives_each_job_one_result_with_flat_memory_and_quick_lists() {
    if !has("root", geteuid().is_root()) {
        return;
    }
    let count = std::env::var(JOBS).map_or(JOBS_DEFAULT, |jobs| jobs.parse().unwrap());
    let store = TempDir::new().unwrap();
    let service = job_server(store.path())
        .env("JOBS_WORKERS", WORKERS.to_string())
        .env("JOBS_QUEUE_MAX", count.to_string())
        .start();
    let workspace = Workspace::empty().file("data", "x");
    let request = workspace.request(&["true"]);
    // A first job, so that one-time costs are not measured.
    crate::doors::ask_http(&service, &request);
    let rss_before = host::resident_bytes(service.pid());
    // Every worker is busy until all jobs are queued.
    let blocks = with(workspace.request(&["sleep", "600"]), "limits.timeout_ms", 3_600_000);
    for worker in 0..WORKERS {
        post_job(&service, &with(blocks.clone(), "job_id", format!("blocks-{worker}")));
    }
    let asked = Instant::now();
    for number in 0..count {
        let answer = post_job(&service, &with(request.clone(), "job_id", format!("many-{number}")));
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    let posted = asked.elapsed();
    let waiting = service.get("/v1/jobs?status=queued&limit=1000");
    assert_eq!(waiting.body.matches("job_id").count(), count.min(1000));
    for worker in 0..WORKERS {
        post_to(&service, &format!("/v1/jobs/blocks-{worker}/cancel"), "", "");
    }
    let began = Instant::now();
    let over = AtomicBool::new(false);
    let (mut lists, mut events, mut peak) = (Vec::new(), Vec::new(), 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let patience = PATIENCE_PER_JOB * u32::try_from(count).unwrap();
            let last = format!("/v1/jobs/many-{}", count - 1);
            wait_until("the last job", patience, || {
                service.get(&last).body.contains("finished_at")
            });
            over.store(true, Ordering::SeqCst);
        });
        while !over.load(Ordering::SeqCst) {
            let asked = Instant::now();
            let listed = service.get("/v1/jobs?limit=100");
            lists.push(asked.elapsed());
            assert_eq!(listed.status, 200, "{listed:?}");
            let asked = Instant::now();
            let mut follower = service.connect();
            follower.send(
                "GET /v1/jobs/many-0/events HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
            );
            follower.wait_for("event: ");
            events.push(asked.elapsed());
            peak = peak.max(host::resident_bytes(service.pid()));
            thread::sleep(Duration::from_millis(20));
        }
    });
    let all = began.elapsed();
    wait_until("the last jobs", Duration::from_secs(30), || {
        !service.get("/v1/jobs?status=running&limit=1").body.contains("job_id")
            && !service.get("/v1/jobs?status=queued&limit=1").body.contains("job_id")
    });
    let mut completed = 0;
    let mut cursor = String::new();
    loop {
        let page = service.get(&format!("/v1/jobs?status=completed&limit=1000{cursor}"));
        let page: Value = serde_json::from_str(&page.body).unwrap();
        completed += page["jobs"].as_array().unwrap().len();
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(completed, count + 1);
    let results = fs::read_dir(store.path().join("runs")).unwrap();
    let results = results.filter(|job| job.as_ref().unwrap().path().join("result.json").is_file());
    assert_eq!(results.count(), count + 1 + WORKERS);
    let rss_after = host::resident_bytes(service.pid());
    let (lists, events) = (p99(lists), p99(events));
    eprintln!(
        "{count} jobs, all queued, 8 workers: taken in {posted:.2?}, run in {all:.2?} ({:.0} a second); \
         list p99 {lists:.1?}, first event p99 {events:.1?}; resident {} MiB before, {} at most, {} after",
        count as f64 / all.as_secs_f64(),
        rss_before >> 20,
        peak >> 20,
        rss_after >> 20,
    );
    assert!(lists <= ANSWERED_WITHIN && events <= ANSWERED_WITHIN, "{lists:?} {events:?}");
    assert!(rss_after <= rss_before + GROWTH_BYTES_MAX, "{rss_before} became {rss_after}");
}
