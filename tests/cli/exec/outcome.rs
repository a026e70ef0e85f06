//! The exit codes and reports of `exec`.

use serde_json::{Value, json};

use crate::support::{cofferdam, exec_sh, has_keys_in_order};

/// Options, a script, and the expected exit code and report.
struct ExecCase {
    options: &'static str,
    script: &'static str,
    code: i32,
    report: Value,
}

fn cases() -> Vec<ExecCase> {
    let case = |options, script, code, outcome: &str, exit_code, signal, limit| {
        let report =
            json!({ "outcome": outcome, "exit_code": exit_code, "signal": signal, "limit": limit });
        ExecCase { options, script, code, report }
    };
    const BUSY: &str = "while :; do :; done";
    const HOG: &str = "exec tail /dev/zero";
    const FORKS: &str = "(for i in 1 2 3 4 5 6 7 8; do sleep 5 & done); exit 5";
    const FILLS: &str = "head -c 3000000 /dev/zero >/tmp/x; exit 6";
    let none = Value::Null;
    vec![
        case("", "exit 0", 0, "exited", json!(0), none.clone(), none.clone()),
        case("", "exit 77", 77, "exited", json!(77), none.clone(), none.clone()),
        case("", "kill -SEGV $$", 139, "signaled", none.clone(), json!(11), none.clone()),
        case(
            "--timeout 200ms",
            "sleep 50",
            124,
            "timed_out",
            none.clone(),
            none.clone(),
            json!("wall_time"),
        ),
        case(
            "--cpu-time 200ms",
            BUSY,
            124,
            "cpu_limit",
            none.clone(),
            none.clone(),
            json!("cpu_time"),
        ),
        case("--memory 32MiB", HOG, 123, "memory_limit", none.clone(), json!(9), json!("memory")),
        case(
            "--output 10",
            "echo 0123456789",
            123,
            "output_limit",
            none.clone(),
            none.clone(),
            json!("output"),
        ),
        case("--pids 4", FORKS, 5, "process_limit", none.clone(), none.clone(), json!("processes")),
        case("--disk 1MiB", FILLS, 6, "disk_limit", none.clone(), none.clone(), json!("disk")),
    ]
}

#[test]
fn every_outcome_has_its_exit_code_and_report() {
    for ExecCase { options, script, code, report } in cases() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report.json");
        let done =
            exec_sh(&format!("--report {} {options}", file.display()), script).run().exits(code);
        let text = std::fs::read_to_string(&file).unwrap();
        let written: Value = serde_json::from_str(&text).unwrap();
        for (key, wanted) in report.as_object().unwrap() {
            done.holds(&written[key] == wanted, &format!("{key} {wanted}, not {text}"));
        }
    }
}

#[test]
fn a_report_has_every_key_of_the_contract_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let call = cofferdam("exec --report r.json -- sh -c").arg("echo hi; echo oh >&2");
    call.within(directory.path()).run().exits(0).prints("hi\n");
    let text = std::fs::read_to_string(directory.path().join("r.json")).unwrap();
    assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text}");
    has_keys_in_order(
        &text,
        &["outcome", "exit_code", "signal", "limit", "usage", "enforced", "not_enforced"],
    );
    has_keys_in_order(
        &text,
        &[
            "wall_ms",
            "cpu_ms",
            "memory_peak_bytes",
            "memory_peak_source",
            "processes_peak",
            "oom_kills",
            "stdout_bytes",
            "stderr_bytes",
            "namespaces",
            "seccomp",
            "memory",
            "processes",
            "disk",
            "cpu",
        ],
    );
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report.as_object().unwrap().len(), 7);
    assert_eq!(report["usage"].as_object().unwrap().len(), 8);
    assert_eq!(report["usage"]["stdout_bytes"], 3);
    assert_eq!(report["usage"]["stderr_bytes"], 3);
    assert_eq!(report["enforced"]["seccomp"], "default");
    assert_eq!(report["enforced"]["disk"], "tmpfs");
}

#[test]
fn a_program_that_cannot_start_has_an_exit_code_for_its_reason() {
    for (arguments, code, words) in [
        ("no-such-program", 127, "no-such-program: not found"),
        ("/no/such/program", 127, "/no/such/program: not found"),
        ("/etc/passwd", 126, "/etc/passwd: cannot be executed: EACCES"),
        ("/etc", 126, "/etc: cannot be executed: EACCES"),
    ] {
        cofferdam("exec --").words(arguments).run().exits(code).complains(words);
    }
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    std::fs::write(&program, "\x7fnot a program").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let bind = format!("--bind {}:/given/program:ro", program.display());
    cofferdam("exec").words(&bind).words("-- /given/program").run().exits(126).complains("ENOEXEC");
    let done = cofferdam("exec --workdir /nowhere -- true").run().exits(125);
    done.complains("sandbox: workdir /nowhere: ENOENT; it must be a directory in the sandbox");
}

#[test]
fn the_report_of_a_run_that_did_not_start_is_empty() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.json");
    std::fs::write(&file, "old").unwrap();
    let report = format!("--report {}", file.display());
    cofferdam("exec").words(&report).words("--bind /no/source:/data -- true").run().exits(2);
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "old",
        "a usage error truncated an older report"
    );
    cofferdam("exec").words(&report).words("-- no-such-program").run().exits(127);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
}

#[test]
fn output_is_cut_at_its_limit() {
    exec_sh("--output 10", "printf 0123456789").run().exits(0).prints("0123456789").quietly();
    exec_sh("--output 10", "printf 0123456789; printf 0123456789 >&2; printf x")
        .run()
        .exits(123)
        .prints("0123456789");
    let done = exec_sh("--output 0", "head -c 5000000 /dev/zero").run().exits(0);
    done.holds(done.output.stdout.len() == 5_000_000, "5000000 bytes");
}

#[test]
fn a_report_counts_oom_kills_that_the_run_survives() {
    let directory = tempfile::tempdir().unwrap();
    for (script, is_killed) in [("tail /dev/zero; exit 0", true), ("exit 0", false)] {
        let call = exec_sh("--memory 32MiB --report r.json", script);
        call.within(directory.path()).run().exits(0);
        let text = std::fs::read_to_string(directory.path().join("r.json")).unwrap();
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["outcome"], "exited", "{text}");
        match report["usage"]["oom_kills"].as_u64() {
            Some(kills) => assert_eq!(kills > 0, is_killed, "{text}"),
            None => assert!(report["enforced"]["memory"].is_null(), "{text}"),
        }
    }
}
