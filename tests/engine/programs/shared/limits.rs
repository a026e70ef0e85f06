//! The limits of a shared sandbox: of all programs together, and of each besides.

use cofferdam_test_server::service::wait_until;
use serde_json::json;

use super::{SOON, processes, run, running, shared, shared_with, start};

/// Takes so many MiB of memory, and keeps them.
fn take(mib: u32) -> String {
    format!(
        "exec python3 -c \"import time; x = b'x' * ({mib} << 20); print('taken', flush=True); time.sleep(600)\""
    )
}

#[test]
fn memory_of_all_programs_together_is_bounded_and_the_one_that_is_picked_dies_as_a_whole() {
    let keys = json!({"limits": {"memory_mb": 160}});
    let Some((scene, workspace)) = shared_with(&keys) else { return };
    scene.sh(&workspace, "sleep 600 &");
    let small = start(&scene, &workspace, &take(40), &json!({}));
    wait_until("it is taken", SOON, || {
        scene.get(&format!("{small}/log")).json()["output"] == "taken"
    });
    // Each is within the limit; the largest is what the kernel picks.
    let script = format!("setsid sleep 641 & ({}) & sleep 642; wait", take(150));
    let result = run(&scene, &workspace, &script, &json!({"timeout_ms": 60000}));
    assert_eq!(
        (&result["limit"], &result["exit_code"]),
        (&json!("memory"), &json!(-1)),
        "{result}"
    );
    for number in [641, 642] {
        assert!(running(&scene, &workspace, &format!("sleep {number}")).is_empty(), "{number}");
    }
    assert_eq!(scene.get(&small).json()["status"], "running");
    assert_eq!(running(&scene, &workspace, "sleep 600").len(), 1);
    assert_eq!(scene.sh(&workspace, "echo the init lives"), "the init lives\n");
}

#[test]
fn what_a_program_left_dies_as_a_whole_too() {
    let keys = json!({"limits": {"memory_mb": 64}});
    let Some((scene, workspace)) = shared_with(&keys) else { return };
    let script =
        format!("setsid sleep 651 & (until [ -e go ]; do sleep 0.01; done; {}) &", take(80));
    assert_eq!(run(&scene, &workspace, &script, &json!({}))["exit_code"], 0);
    wait_until("it is executed", SOON, || running(&scene, &workspace, "sleep 651").len() == 1);
    scene.sh(&workspace, "sleep 600 & touch go");
    wait_until("it is dead", SOON, || running(&scene, &workspace, "sleep 651").is_empty());
    assert_eq!(running(&scene, &workspace, "sleep 600").len(), 1);
}

#[test]
fn a_program_has_its_own_limits_besides() {
    let Some((scene, workspace)) = shared() else { return };
    let limits = json!({"limits": {"memory_mb": 64}, "timeout_ms": 60000});
    let result = run(&scene, &workspace, &take(80), &limits);
    assert_eq!(result["limit"], "memory", "{result}");
    let bomb = "import os, sys\nfor n in range(40):\n    try:\n        if os.fork() == 0: os.execvp('sleep', ['sleep', '661'])\n    except BlockingIOError: sys.exit(5)\n";
    let limits = json!({"cmd": "python3", "args": ["-c", bomb], "limits": {"max_pids": 8}});
    let result = scene.run(&workspace, &limits);
    assert_eq!(
        (&result["limit"], &result["exit_code"]),
        (&json!("processes"), &json!(5)),
        "{result}"
    );
    assert!(running(&scene, &workspace, "sleep 661").len() <= 8);
}

#[test]
fn processes_of_all_programs_together_are_bounded() {
    let keys = json!({"limits": {"max_pids": 20}});
    let Some((scene, workspace)) = shared_with(&keys) else { return };
    let script = "n=0; while [ $n -lt 12 ]; do n=$((n+1)); sleep 671 & done";
    assert_eq!(run(&scene, &workspace, script, &json!({}))["exit_code"], 0);
    let bomb = "import os, sys\nfor n in range(19):\n    try:\n        if os.fork() == 0: os.execvp('sleep', ['sleep', '672'])\n    except BlockingIOError: sys.exit(5)\n";
    let result = scene.run(&workspace, &json!({"cmd": "python3", "args": ["-c", bomb]}));
    assert_eq!(
        (&result["limit"], &result["exit_code"]),
        (&json!("processes"), &json!(5)),
        "{result}"
    );
    assert!(processes(&scene, &workspace).len() <= 20);
}

#[test]
fn a_limit_of_cpu_time_kills_the_whole_program_and_nothing_else() {
    let Some((scene, workspace)) = shared() else { return };
    scene.sh(&workspace, "sleep 600 &");
    let script = "setsid sleep 681 & (while :; do :; done) & while :; do :; done";
    let limits = json!({"limits": {"cpu_time_ms": 500}, "timeout_ms": 60000});
    let result = run(&scene, &workspace, script, &limits);
    assert_eq!(result["limit"], "cpu_time", "{result}");
    assert!(running(&scene, &workspace, "sleep 681").is_empty());
    assert_eq!(running(&scene, &workspace, "sleep 600").len(), 1);
}
