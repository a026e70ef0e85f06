//! The limits of a job, each tested by a program that exceeds it.

use serde_json::{Value, json};

use crate::doors::{EACH, doors};
use crate::workspace::{Workspace, with};

/// Asserts that the result reports `limit` as exceeded.
#[track_caller]
fn assert_met(result: &Value, limit: &str) {
    assert_eq!(result["status"], "failed", "{result}");
    assert_eq!(result["error"]["code"], "run.limit_exceeded", "{result}");
    assert_eq!(result["error"]["details"]["limit"], limit, "{result}");
}

#[test]
fn memory_above_the_limit_kills() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("x = b'x' * (256 << 20); print('never')");
    let request = with(workspace.run_main(), "limits.memory_bytes", 64 << 20);
    for door in EACH {
        let result = doors.result(door, &request);
        assert_met(&result, "memory");
        assert_eq!((&result["exit_code"], &result["stdout"]["text"]), (&Value::Null, &json!("")));
        assert!(result["usage"]["memory_peak_bytes"].as_u64().unwrap() <= 80 << 20, "{result}");
    }
}

#[test]
fn cpu_time_above_the_limit_kills_and_differs_from_a_timeout() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("while True: pass");
    let request = with(workspace.run_main(), "limits.cpu_time_ms", 500);
    for door in EACH {
        let result = doors.result(door, &request);
        assert_met(&result, "cpu_time");
        let used = result["usage"]["cpu_ms"].as_u64().unwrap();
        assert!((400..5000).contains(&used), "{used}");
    }
}

#[test]
fn live_processes_never_exceed_the_limit() {
    let Some(doors) = doors() else { return };
    let program = "\
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except BlockingIOError:
    print(made, flush=True)
    os._exit(7)
";
    let workspace = Workspace::python(program);
    let request = with(workspace.run_main(), "limits.processes", 10);
    for door in EACH {
        let result = doors.result(door, &request);
        assert_met(&result, "processes");
        assert_eq!((&result["exit_code"], &result["stdout"]["text"]), (&json!(7), &json!("9\n")));
        assert_eq!(result["usage"]["processes_peak"], 10, "{result}");
    }
}

#[test]
fn writes_beyond_the_limit_fail_for_any_size_of_the_workspace() {
    let Some(doors) = doors() else { return };
    let program = "\
written = 0
try:
    with open('big', 'wb', buffering=0) as big:
        while True: written += big.write(b'x' * 65536)
except OSError as error:
    print(error.errno, written >> 20, flush=True)
    raise SystemExit(5)
";
    let workspace = Workspace::python(program).file("copied", vec![b'x'; 8 << 20]);
    let request = with(workspace.run_main(), "limits.disk_bytes", 4 << 20);
    for door in EACH {
        let result = doors.result(door, &request);
        assert_met(&result, "disk");
        assert_eq!(result["exit_code"], 5, "{result}");
        let text = result["stdout"]["text"].as_str().unwrap();
        assert!(text == "28 3\n" || text == "28 4\n", "{text:?}");
    }
}

#[test]
fn a_limit_above_the_maximum_is_refused_and_one_below_the_default_holds() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("print(1)");
    for door in EACH {
        let request = with(workspace.run_main(), "limits.memory_bytes", 1_u64 << 40);
        let error = doors.refusal(door, &request);
        assert_eq!(error["code"], "validation.invalid_request", "{error}");
        assert_eq!(error["details"]["path"], "limits.memory_bytes", "{error}");
        assert!(error["details"]["max"].is_u64(), "{error}");
    }
}

#[test]
fn a_record_above_its_size_limit_is_truncated_and_marked() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python("print('x' * 200_000)");
    let request = with(workspace.run_main(), "limits.record_bytes", 65_536);
    for door in EACH {
        let result = doors.result(door, &request);
        assert_eq!(result["status"], "completed", "{}", result["error"]);
        assert!(serde_json::to_vec(&result).unwrap().len() <= 65_536);
        assert_eq!(
            (&result["stdout"]["truncated"], &result["stdout"]["bytes"]),
            (&json!(true), &json!(200_001))
        );
        let cut = result["not_recorded"][0].as_str().unwrap();
        assert!(cut.starts_with("stdout.text"), "{cut}");
    }
}
