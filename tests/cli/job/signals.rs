//! Ending a job from outside: signals, and a cancel by another process.

use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::support::JobDirectory;
use crate::support::{ends_within, is_running, pid_of, until_running};

/// How soon everything must have ended.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Starts a job that ignores signals, has a detached child, and has written output.
fn started(place: &JobDirectory, id: &str, duration: &str) -> Child {
    let script = format!(
        "echo early; trap '' TERM INT HUP; setsid sleep {duration} & mkdir out; echo x >out/a; sleep {duration}"
    );
    let mut request = place.script(&script);
    request["job_id"] = json!(id);
    request["policy"]["artifacts"] = json!({"include": ["out/**"]});
    let mut child = place.run_file(&request).spawn();
    until_running(duration, &mut child);
    std::thread::sleep(Duration::from_millis(300));
    child
}

fn ended(mut child: Child) -> (Option<i32>, Value, String) {
    let status = ends_within(&mut child, AT_ONCE);
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let result = serde_json::from_str(&stdout).unwrap();
    (status.code(), result, String::from_utf8(output.stderr).unwrap())
}

fn has_the_output_so_far(result: &Value) {
    assert_eq!(result["status"], "canceled", "{result}");
    assert_eq!(result["error"]["code"], "run.canceled");
    assert_eq!((&result["exit_code"], &result["signal"]), (&Value::Null, &Value::Null));
    assert_eq!(result["stdout"]["text"], "early\n");
    assert_eq!(result["artifacts"][0]["path"], "out/a");
}

#[test]
fn a_signal_cancels_the_job_and_its_result_has_the_output_so_far() {
    for (signal, code, duration) in
        [(Signal::SIGINT, 130, "600.31"), (Signal::SIGTERM, 143, "600.32")]
    {
        let place = JobDirectory::new(&[]);
        let child = started(&place, "job_1", duration);
        kill(pid_of(&child), signal).unwrap();
        let (exit_code, result, stderr) = ended(child);
        assert_eq!((exit_code, stderr.as_str()), (Some(code), ""));
        has_the_output_so_far(&result);
        assert!(!is_running(duration), "a process of the sandbox survived {signal}");
        let stored = place.job("result job_1").run().exits(0).json();
        assert_eq!(stored, result);
    }
}

#[test]
fn another_process_sees_a_live_job_and_cancels_it_through_the_store() {
    let place = JobDirectory::new(&[]);
    let child = started(&place, "job_1", "600.33");
    let live = place.job("status job_1").run().exits(0).quietly().json();
    assert_eq!((&live["job_id"], &live["status"]), (&json!("job_1"), &json!("running")));
    let mut keys: Vec<_> = live.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["job_id", "queued_at", "started_at", "status"]);
    for words in ["result job_1", "artifacts job_1"] {
        let error = place.job(words).run().exits(1).prints("").error();
        assert_eq!(error["code"], "job.conflict", "{words}");
    }
    let submitted = place.job("cancel job_1").run().exits(0).quietly().json();
    assert_eq!(submitted, json!({"job_id": "job_1", "status": "running"}));
    let (exit_code, result, stderr) = ended(child);
    assert_eq!((exit_code, stderr.as_str()), (Some(130), ""));
    has_the_output_so_far(&result);
    assert!(!is_running("600.33"));
    let error = place.job("cancel job_1").run().exits(1).prints("").error();
    assert_eq!(
        (&error["code"], &error["details"]["status"]),
        (&json!("job.conflict"), &json!("canceled"))
    );
}

#[test]
fn a_stalled_reader_does_not_delay_the_exit_after_a_signal() {
    let place = JobDirectory::new(&[]);
    let mut request = place.script("head -c 500000 /dev/zero | tr '\\0' x; echo >&2; sleep 600.34");
    request["job_id"] = json!("job_1");
    let mut child = place.run_file(&request).spawn();
    until_running("600.34", &mut child);
    kill(pid_of(&child), Signal::SIGTERM).unwrap();
    assert_eq!(ends_within(&mut child, AT_ONCE).code(), Some(143));
}
