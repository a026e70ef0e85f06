//! Statements 32 to 35: jobs over HTTP, the queue, records and cancels.

use std::fs;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::Answer;
use cofferdam_test_server::service::{Service, best_of_three, wait_until};
use cofferdam_test_support::has;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::doors::{doors, job_server, post_job, post_to, wait_for_end};
use crate::workspace::{Workspace, with};

/// The longest time from a cancel to the end of a running job.
const CANCELED_WITHIN: Duration = Duration::from_secs(1);
const SLEEPS: &str = "print('began', flush=True)\nimport time; time.sleep(600)";

fn request_for(target: &str) -> String {
    cofferdam_test_server::client::request("GET", target, "connection: close\r\n")
}

fn body(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Posts `request` as `id`, which must be accepted.
#[track_caller]
fn take(service: &Service, request: Value, id: &str) {
    let answer = post_job(service, &with(request, "job_id", id));
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(body(&answer), json!({"job_id": id, "status": "queued"}));
    assert_eq!(answer.header("location"), Some(format!("/v1/jobs/{id}").as_str()));
}

/// Waits until the job `id` has printed something.
#[track_caller]
fn wait_running(service: &Service, store: &TempDir, id: &str) {
    let stdout = store.path().join("runs").join(id).join("stdout");
    wait_until("a job's output", Duration::from_secs(20), || {
        fs::metadata(&stdout).is_ok_and(|metadata| metadata.len() > 0)
    });
    assert_eq!(body(&service.get(&format!("/v1/jobs/{id}")))["status"], "running");
}

/// Cancels a running job; returns how long it took to end, and its result.
#[track_caller]
fn cancel_running(service: &Service, id: &str) -> (Duration, Value) {
    let began = Instant::now();
    let answer = post_to(service, &format!("/v1/jobs/{id}/cancel"), "", "");
    assert_eq!(answer.status, 202, "{answer:?}");
    let result = wait_for_end(service, id);
    (began.elapsed(), result)
}

fn is_privileged() -> bool {
    has("root", nix::unistd::geteuid().is_root())
}

#[test]
fn s32_a_job_is_submitted_followed_and_read() {
    let Some(doors) = doors() else { return };
    let service = doors.service();
    let health = service.ask("GET /health HTTP/1.1\r\nhost: x\r\naccept: application/json\r\n\r\n");
    health.assert_json(200, r#"{"status":"ok"}"#);
    let workspace = Workspace::python("open('a b', 'w').write('artifact'); print(1)");
    let request = with(workspace.run_main(), "policy.artifacts", json!({"include": ["*"]}));
    take(service, request, "s32");
    let result = wait_for_end(service, "s32");
    let listed = body(&service.get("/v1/jobs/s32/artifacts"));
    assert_eq!(listed["artifacts"], result["artifacts"]);
    let artifact = service.get("/v1/jobs/s32/artifacts/a%20b");
    assert_eq!((artifact.status, artifact.body.as_str()), (200, "artifact"));
    assert_eq!(artifact.header("content-type"), Some("application/octet-stream"));
    let mut follower = service.connect();
    follower.send(request_for("/v1/jobs/s32/events"));
    let events = String::from_utf8(follower.rest()).unwrap();
    assert!(events.contains("event: stdout") && events.contains("event: result"), "{events}");
    for target in
        ["/v1/jobs/absent", "/v1/jobs/..", "/v1/jobs/absent/artifacts", "/v1/jobs/absent/events"]
    {
        let answer = service.get(target);
        assert_eq!(answer.status, 404, "{target}: {answer:?}");
        assert_eq!(body(&answer)["code"], "job.not_found", "{target}");
    }
    take(service, Workspace::python(SLEEPS).run_main(), "s32-live");
    let live = service.get("/v1/jobs/s32-live/artifacts");
    assert_eq!((live.status, &body(&live)["code"]), (409, &json!("job.conflict")));
    post_to(service, "/v1/jobs/s32-live/cancel", "", "");
    wait_for_end(service, "s32-live");
}

#[test]
fn s33_a_full_queue_refuses_at_once_and_keeps_no_record() {
    if !is_privileged() {
        return;
    }
    let store = TempDir::new().unwrap();
    let service =
        job_server(store.path()).env("JOBS_WORKERS", "1").env("JOBS_QUEUE_MAX", "1").start();
    let workspace = Workspace::python(SLEEPS);
    take(&service, workspace.run_main(), "runs");
    wait_running(&service, &store, "runs");
    take(&service, workspace.run_main(), "waits");
    let answer = post_job(&service, &with(workspace.run_main(), "job_id", "refused"));
    assert_eq!((answer.status, &body(&answer)["code"]), (503, &json!("queue.full")));
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    // A request is validated before the queue is checked.
    let bad = post_job(&service, &with(workspace.run_main(), "extra", 1));
    assert_eq!(bad.status, 422, "{bad:?}");
    let mut records: Vec<_> = fs::read_dir(store.path().join("runs"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    records.sort();
    assert_eq!(records, ["runs", "waits"]);
    for id in ["runs", "waits"] {
        assert_eq!(post_to(&service, &format!("/v1/jobs/{id}/cancel"), "", "").status, 202);
    }
    for id in ["runs", "waits"] {
        assert_eq!(wait_for_end(&service, id)["status"], "canceled");
    }
}

#[test]
fn s33_a_draining_service_refuses_jobs_and_ends_every_accepted_one() {
    if !is_privileged() {
        return;
    }
    let store = TempDir::new().unwrap();
    let mut service =
        job_server(store.path()).env("JOBS_WORKERS", "1").env("SHUTDOWN_GRACE", "2s").start();
    let workspace = Workspace::python(SLEEPS);
    take(&service, workspace.run_main(), "runs");
    wait_running(&service, &store, "runs");
    take(&service, workspace.run_main(), "waits");
    service.signal(nix::sys::signal::Signal::SIGTERM);
    service.wait_draining();
    let answer = post_job(&service, &workspace.run_main());
    assert_eq!((answer.status, &body(&answer)["code"]), (503, &json!("queue.closed")));
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    assert_eq!(service.wait_end(Duration::from_secs(20)).code(), Some(0));
    for id in ["runs", "waits"] {
        let result = fs::read(store.path().join("runs").join(id).join("result.json")).unwrap();
        let result: Value = serde_json::from_slice(&result).unwrap();
        assert_eq!(result["status"], "failed", "{id}: {result}");
        assert_eq!(result["error"]["code"], "run.interrupted", "{id}: {result}");
    }
}

#[test]
fn s34_records_outlive_the_service_and_unfinished_jobs_end_as_interrupted() {
    if !is_privileged() {
        return;
    }
    let store = TempDir::new().unwrap();
    let mut service = job_server(store.path()).env("JOBS_WORKERS", "1").start();
    let done = Workspace::python("print('done'); open('out', 'w').write('x')");
    let request = with(done.run_main(), "policy.artifacts", json!({"include": ["out"]}));
    take(&service, request, "done");
    let before = wait_for_end(&service, "done");
    let sleeps = Workspace::python(SLEEPS);
    take(&service, sleeps.run_main(), "runs");
    wait_running(&service, &store, "runs");
    take(&service, sleeps.run_main(), "waits");
    let directory = store.path().join("runs/done");
    for file in [
        "request.json",
        "status.json",
        "result.json",
        "snapshot.json",
        "stdout",
        "stderr",
        "artifacts/out",
    ] {
        assert!(directory.join(file).is_file(), "{file}");
    }
    service.kill();
    drop(service);
    let service = job_server(store.path()).start();
    assert_eq!(wait_for_end(&service, "done"), before);
    assert_eq!(service.get("/v1/jobs/done/artifacts/out").body, "x");
    for id in ["runs", "waits"] {
        let result = wait_for_end(&service, id);
        assert_eq!(result["status"], "failed", "{id}: {result}");
        assert_eq!(result["error"]["code"], "run.interrupted", "{id}: {result}");
        assert_eq!(result["error"]["details"]["reason"], "interrupted", "{id}: {result}");
    }
    assert_eq!(wait_for_end(&service, "runs")["stdout"]["text"], "began\n");
    let listed = body(&service.get("/v1/jobs"));
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 3, "{listed}");
}

#[test]
fn s35_a_job_is_canceled_as_quickly_while_its_workspace_is_copied() {
    if !is_privileged() {
        return;
    }
    let store = TempDir::new().unwrap();
    let service = job_server(store.path()).env("JOBS_WORKERS", "1").start();
    let workspace = Workspace::empty();
    for directory in 0..40 {
        fs::create_dir(workspace.path().join(directory.to_string())).unwrap();
        for file in 0..1000 {
            fs::write(workspace.path().join(format!("{directory}/{file}")), "x").unwrap();
        }
    }
    let mut tries = 0;
    best_of_three(CANCELED_WITHIN, || {
        tries += 1;
        let id = format!("copies-{tries}");
        take(&service, workspace.request(&["true"]), &id);
        wait_until("the start of the job", Duration::from_secs(10), || {
            body(&service.get(&format!("/v1/jobs/{id}")))["status"] == "running"
        });
        let (took, result) = cancel_running(&service, &id);
        assert_eq!((&result["status"], &result["snapshot"]), (&json!("canceled"), &Value::Null));
        took
    });
}

#[test]
fn s35_a_cancel_removes_a_waiting_job_kills_a_running_one_and_keeps_an_ended_one() {
    if !is_privileged() {
        return;
    }
    let store = TempDir::new().unwrap();
    let service = job_server(store.path()).env("JOBS_WORKERS", "1").start();
    let workspace = Workspace::python(SLEEPS);
    take(&service, workspace.run_main(), "runs");
    wait_running(&service, &store, "runs");
    take(&service, workspace.run_main(), "waits");
    let cancel = |id: &str| post_to(&service, &format!("/v1/jobs/{id}/cancel"), "", "");
    let answer = cancel("waits");
    assert_eq!(
        (answer.status, body(&answer)),
        (202, json!({"job_id": "waits", "status": "canceled"}))
    );
    let result = wait_for_end(&service, "waits");
    assert_eq!((&result["status"], &result["usage"]), (&json!("canceled"), &Value::Null));
    let mut tries = 0;
    best_of_three(CANCELED_WITHIN, || {
        tries += 1;
        let id = if tries == 1 { "runs".to_owned() } else { format!("runs-{tries}") };
        if tries > 1 {
            take(&service, workspace.run_main(), &id);
            wait_running(&service, &store, &id);
        }
        let (took, result) = cancel_running(&service, &id);
        assert_eq!((&result["status"], &result["exit_code"]), (&json!("canceled"), &Value::Null));
        assert_eq!(result["error"]["code"], "run.canceled");
        assert_eq!(result["stdout"]["text"], "began\n", "{result}");
        took
    });
    for id in ["runs", "waits"] {
        let answer = cancel(id);
        assert_eq!((answer.status, &body(&answer)["code"]), (409, &json!("job.conflict")));
    }
    assert_eq!(cancel("absent").status, 404);
}
