//! `GET /metrics`: access, listener, format, and the counting of refusals and connections.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cofferdam::check::metrics::{CheckMetrics, RunCount};
use cofferdam::check::run::CheckError;
use cofferdam::config::MetricsPlace;
use cofferdam::http::{HttpLimits, HttpSettings};
use cofferdam::job::JobMetrics;
use cofferdam_core::job::JobStatus;
use cofferdam_core::{
    PrestartMetrics, SandboxMetrics, SetupFailure, StandbyMetrics, SweepCounts, WarmSandboxes,
};
use cofferdam_test_server::exposition::Exposition;

use crate::jobs::scripted::ScriptedJobs;
use crate::jobs::serve_plainly;
use crate::support::{
    Answer, HEALTH, Running, ScriptedChecks, body, post, settings, start, start_echo,
};

/// A request with both a length and chunks.
const FRAMED_TWICE: &str = "POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
const METRICS: &str = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n";
const STATUS: &str = "GET /status HTTP/1.1\r\nhost: x\r\n\r\n";

fn get(headers: &str) -> String {
    format!("GET /metrics HTTP/1.1\r\nhost: x\r\n{headers}\r\n")
}

fn scrape(server: &Running) -> Exposition {
    let answer = server.ask(METRICS);
    assert_eq!(answer.status, 200, "{answer:?}");
    Exposition::parse(&answer.body)
}

/// The counted refusals, by reason.
fn refusals(server: &Running) -> BTreeMap<String, f64> {
    let scraped = scrape(server);
    let counted = scraped.all("cofferdam_refusals_total").filter(|sample| sample.value > 0.0);
    counted.map(|sample| (sample.labels["reason"].clone(), sample.value)).collect()
}

#[test]
fn every_refusal_is_counted_under_its_own_reason() {
    // Runs long enough that a second run finds no slot.
    let checks = ScriptedChecks::new(1, |request, watch, _| match request.solution_text.as_str() {
        "fail" => Err(CheckError::Sandbox(SetupFailure::from_errno("clone", libc::EPERM))),
        "panic" => panic!("a panic for the test"),
        _ => {
            crate::support::wait_for_end(&watch);
            Ok(crate::support::exited(0, "", ""))
        }
    });
    let limits = HttpLimits { body_within: Duration::from_millis(100), ..settings().limits };
    let server = start(checks.clone(), HttpSettings { limits, ..settings() });
    let run = |solution: &str| post("", &body(solution));
    let mut expected = BTreeMap::new();
    for (reason, status, request) in [
        ("not_found", 404, "GET /x HTTP/1.1\r\nhost: x\r\n\r\n".to_owned()),
        ("method_not_allowed", 405, "GET /run HTTP/1.1\r\nhost: x\r\n\r\n".to_owned()),
        ("method_not_allowed", 405, "PUT /metrics HTTP/1.1\r\nhost: x\r\n\r\n".to_owned()),
        ("host", 403, post("", &body("x")).replace("host: x", "host: evil.example")),
        ("cross_origin", 403, post("origin: http://evil.example\r\n", &body("x"))),
        ("framing", 400, FRAMED_TWICE.to_owned()),
        ("content_encoding", 415, post("content-encoding: gzip\r\n", &body("x"))),
        ("too_large", 413, post("", &"x".repeat(2000))),
        (
            "body_late",
            408,
            "POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx".to_owned(),
        ),
        (
            "body_incomplete",
            400,
            "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(),
        ),
        ("invalid", 400, post("", "{")),
        ("invalid", 400, post("", r#"{"lang_slug":"Python","solution_text":""}"#)),
        ("unavailable", 503, post("", r#"{"lang_slug":"absent","solution_text":""}"#)),
        ("sandbox", 500, run("fail")),
        ("internal", 500, run("panic")),
    ] {
        let answer = server.ask(&request);
        assert_eq!(answer.status, status, "{reason}: {answer:?}");
        *expected.entry(reason.to_owned()).or_insert(0.0) += 1.0;
        assert_eq!(refusals(&server), expected, "after {reason}");
    }
    let mut live = server.connect();
    live.send(run("wait"));
    // In addition to the runs that failed and panicked.
    while checks.runs.load(Ordering::SeqCst) < 3 {
        std::thread::yield_now();
    }
    assert_eq!(server.ask(run("x")).status, 429);
    assert_eq!(refusals(&server)["busy"], 1.0);
    server.shutdown.request();
    assert_eq!(server.ask(run("x")).status, 503);
    assert_eq!(refusals(&server)["draining"], 1.0);
    assert_eq!(refusals(&server)["busy"], 1.0);
}

#[test]
fn two_servers_in_one_process_count_separately() {
    let (one, other) = (start_echo(), start_echo());
    for _ in 0..3 {
        assert_eq!(one.ask(post("", "{")).status, 400);
    }
    let _idle = [(); 5].map(|()| one.connect());
    assert_eq!(refusals(&one), BTreeMap::from([("invalid".to_owned(), 3.0)]));
    assert_eq!(refusals(&other), BTreeMap::new());
    // Counts its own scrapes, perhaps without the last one, and none of the five.
    assert!(scrape(&other).get("cofferdam_connections", &[]) <= 3.0);
}

#[test]
fn only_open_connections_are_counted() {
    let limits = HttpLimits { connections_max: 7, ..settings().limits };
    let server = start(ScriptedChecks::echo(), HttpSettings { limits, ..settings() });
    let idle: Vec<_> = (0..5).map(|_| server.connect()).collect();
    let open = |server: &Running| scrape(server).get("cofferdam_connections", &[]);
    // Includes the scraper's own connection.
    assert_eq!((open(&server), scrape(&server).get("cofferdam_connections_max", &[])), (6.0, 7.0));
    drop(idle);
    let began = Instant::now();
    while open(&server) > 1.0 {
        assert!(began.elapsed() < Duration::from_secs(10), "closed connections are still counted");
    }
}

#[test]
fn a_page_of_another_origin_cannot_read_metrics() {
    let listed = vec!["https://battle.example".to_owned()];
    let server =
        start(ScriptedChecks::echo(), HttpSettings { origins_allow: listed, ..settings() });
    for (headers, status) in [
        ("", 200),
        ("origin: https://battle.example\r\n", 200),
        ("origin: http://evil.example\r\n", 403),
        ("origin: null\r\n", 403),
        ("origin: http://x\r\n", 403),
        ("origin: https://battle.example\r\norigin: http://evil.example\r\n", 403),
    ] {
        let answer = server.ask(get(headers));
        assert_eq!((answer.status, answer.body.contains("cofferdam_")), (status, status == 200));
        assert!(!answer.head.to_lowercase().contains("access-control"), "{}", answer.head);
    }
}

#[test]
fn a_scraper_gets_the_format_it_accepts() {
    let server = start_echo();
    let plain = "text/plain; version=0.0.4; charset=utf-8";
    let open = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    for (accept, mime) in [
        ("", plain),
        ("accept: */*\r\n", plain),
        ("accept: text/plain;version=0.0.4\r\n", plain),
        ("accept: text/html,application/xhtml+xml\r\n", plain),
        (
            "accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
             version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n",
            open,
        ),
    ] {
        let answer = server.ask(get(accept));
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(mime)), "{accept}");
        assert_eq!(answer.body.ends_with("# EOF\n"), mime == open, "{accept}");
        // Only the plain format names a family of counters like its samples.
        let family = if mime == open { "cofferdam_refusals" } else { "cofferdam_refusals_total" };
        assert!(answer.body.contains(&format!("# TYPE {family} counter\n")), "{}", answer.body);
        assert!(answer.body.contains("\ncofferdam_refusals_total{"), "{}", answer.body);
    }
}

#[test]
fn metrics_are_served_only_where_configured() {
    let off =
        start(ScriptedChecks::echo(), HttpSettings { metrics: MetricsPlace::Off, ..settings() });
    assert_eq!((off.metrics_address, off.ask(METRICS).status), (None, 404));

    let own = MetricsPlace::Own("127.0.0.1:0".parse().unwrap());
    let limits = HttpLimits { connections_max: 2, ..settings().limits };
    let server = start(
        ScriptedChecks::echo(),
        HttpSettings { metrics: own, limits, allow_shutdown: true, ..settings() },
    );
    assert_eq!(server.ask(METRICS).status, 404);
    let there = |request: &str| -> Answer {
        let socket = std::net::TcpStream::connect(server.metrics_address.unwrap()).unwrap();
        let mut client = crate::support::Client::of(socket);
        client.send(request);
        client.answer()
    };
    // A client that takes all connections does not block scrapers.
    let _idle = [server.connect(), server.connect(), server.connect()];
    let open = || Exposition::parse(&there(METRICS).body).get("cofferdam_connections", &[]);
    let began = Instant::now();
    while open() < 2.0 {
        assert!(began.elapsed() < Duration::from_secs(10), "not all connections are taken");
    }
    assert_eq!(there(HEALTH).body, "ok\n");
    for request in [post("", &body("x")), post("", "").replace("/run", "/shutdown")] {
        assert_eq!(there(&request).status, 404, "{request}");
    }
    // Refusals on the metrics listener are not counted.
    let again = Exposition::parse(&there(METRICS).body);
    assert_eq!(again.get("cofferdam_refusals_total", &[("reason", "not_found")]), 1.0);
}

#[test]
fn the_metrics_show_the_counts_of_the_service() {
    let checks = ScriptedChecks::echo();
    *checks.metrics.lock().unwrap() = CheckMetrics {
        runs: vec![RunCount { language: "cpp".into(), outcome: "exited", count: 41 }],
        phases: Vec::new(),
        slots: 31,
        slots_in_use: 32,
        draining: false,
        standby: StandbyMetrics {
            sandboxes_max: 1,
            ready: 2,
            made: 3,
            used: 4,
            dropped: 5,
            failed: 6,
        },
        prestart: PrestartMetrics {
            ready: vec![WarmSandboxes { label: "cpp".into(), count: 21, bytes: 22 }],
            bytes_max: 23,
            made: 24,
            used: 25,
            dropped: 26,
            failed: 27,
            cpu: Duration::from_millis(2500),
        },
        sandbox: SandboxMetrics {
            kill_failures: 7,
            undying: 3,
            undying_max: 64,
            cleanup_backlog: 8,
            cleanup_backlog_max: 9,
            swept: SweepCounts { servers: 10, sandboxes: 11, processes: 12 },
            controls: vec![("memory".into(), true), ("uid".into(), false)],
        },
    };
    let server = start(Arc::clone(&checks), settings());
    let scraped = scrape(&server);
    let run = [("language", "cpp"), ("outcome", "exited")];
    assert_eq!(scraped.get("cofferdam_runs_total", &run), 41.0);
    let waiting = [("language", "cpp")];
    assert_eq!(scraped.get("cofferdam_prestart_boxes_ready", &waiting), 21.0);
    assert_eq!(scraped.get("cofferdam_prestart_bytes", &waiting), 22.0);
    for (name, value) in [
        ("slots", 31.0),
        ("slots_in_use", 32.0),
        ("draining", 0.0),
        ("standby_boxes_max", 1.0),
        ("standby_boxes_ready", 2.0),
        ("standby_boxes_made_total", 3.0),
        ("standby_boxes_used_total", 4.0),
        ("standby_boxes_dropped_total", 5.0),
        ("standby_boxes_failed_total", 6.0),
        ("prestart_bytes_max", 23.0),
        ("prestart_boxes_made_total", 24.0),
        ("prestart_boxes_used_total", 25.0),
        ("prestart_boxes_dropped_total", 26.0),
        ("prestart_boxes_failed_total", 27.0),
        ("prestart_cpu_seconds_total", 2.5),
        ("kill_failures_total", 7.0),
        ("undying_boxes", 3.0),
        ("undying_boxes_max", 64.0),
        ("cleanup_backlog", 8.0),
        ("cleanup_backlog_max", 9.0),
        ("swept_servers", 10.0),
        ("swept_boxes", 11.0),
        ("swept_processes", 12.0),
    ] {
        assert_eq!(scraped.get(&format!("cofferdam_{name}"), &[]), value, "{name}");
    }
    for (control, enforced) in [("memory", 1.0), ("uid", 0.0)] {
        assert_eq!(scraped.get("cofferdam_control_enforced", &[("control", control)]), enforced);
    }
}

#[test]
fn the_metrics_and_the_status_show_the_counts_of_the_jobs() {
    let jobs = ScriptedJobs::new();
    *jobs.metrics.lock().unwrap() = JobMetrics {
        queued: 1,
        queue_max: 2,
        running: 3,
        workers: 4,
        ended: vec![(JobStatus::Failed, 5), (JobStatus::Canceled, 6)],
    };
    let server = serve_plainly(&jobs);
    let scraped = scrape(&server);
    for (name, value) in [("queued", 1.0), ("queue_max", 2.0), ("running", 3.0), ("workers", 4.0)] {
        assert_eq!(scraped.get(&format!("cofferdam_jobs_{name}"), &[]), value, "{name}");
    }
    // A counter of zero is exposed too.
    for (status, count) in [
        ("completed", 0.0),
        ("failed", 5.0),
        ("timed_out", 0.0),
        ("policy_denied", 0.0),
        ("setup_failed", 0.0),
        ("backend_unavailable", 0.0),
        ("canceled", 6.0),
    ] {
        assert_eq!(scraped.get("cofferdam_jobs_total", &[("status", status)]), count, "{status}");
    }
    assert_eq!(scraped.all("cofferdam_jobs_total").count(), 7);
    let told = server.ask(STATUS).body;
    assert!(told.contains(r#""jobs":{"queued":1,"running":3,"workers":4}"#), "{told}");
}

#[test]
fn a_server_without_jobs_has_no_job_metrics() {
    let server = start_echo();
    let told = server.ask(METRICS).body;
    assert!(!told.contains("cofferdam_jobs"), "{told}");
    let told = server.ask(STATUS).body;
    assert!(told.contains(r#""draining":false"#) && !told.contains("jobs"), "{told}");
}
