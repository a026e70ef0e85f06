//! Rows 3, 24 to 27 and 32 of the contract: how a run ends and how the answer reports it.

use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Answer, solution, solution_within};
use cofferdam_test_server::host::run_processes;
use cofferdam_test_server::service::{Setup, wait_until};
use cofferdam_test_server::workspace::Workspace;

/// The answer of a workspace whose command is `recipe`.
fn answer_of(recipe: &[&str]) -> Answer {
    Setup::of(Workspace::running(recipe)).start().run("")
}

#[test]
fn a_finished_run_has_three_keys_in_a_fixed_order() {
    let service = Setup::shell().start();
    service
        .run("echo hi; echo err >&2; exit 3")
        .assert_json(200, r#"{"exit_code":3,"stdout":"hi\n","stderr":"err\n"}"#);
    service.run("").assert_json(200, r#"{"exit_code":0,"stdout":"","stderr":""}"#);
}

#[test]
fn the_headers_report_outcome_times_and_memory() {
    let service = Setup::shell().start();
    let answer = service.run("sleep 0.2");
    let figure = |name: &str| answer.header(name).and_then(|value| value.parse::<u64>().ok());
    assert_eq!(answer.header("x-run-outcome"), Some("exited"));
    assert!(figure("x-run-cpu-ms").is_some_and(|cpu_ms| cpu_ms < 1000), "{}", answer.head);
    assert!(figure("x-run-wall-ms").is_some_and(|wall_ms| wall_ms >= 200), "{}", answer.head);
    let has_controller = has_memory_controller();
    let peak = figure("x-run-memory-peak-bytes");
    assert_eq!(peak.is_some_and(|bytes| bytes > 10_000), has_controller, "{}", answer.head);
    let timing = answer.header("server-timing").unwrap_or_default();
    let names: Vec<&str> = timing.split(", ").filter_map(|one| one.split(';').next()).collect();
    assert_eq!(names, ["queue", "prepare", "run", "cleanup"]);
    assert!(answer.timing_ms("run") >= 200.0, "{timing}");
    assert!(answer.timing_ms("prepare") > 0.0, "{timing}");
}

fn has_memory_controller() -> bool {
    let unified = std::fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    Path::new("/sys/fs/cgroup/memory").is_dir() || unified.split(' ').any(|name| name == "memory")
}

#[test]
fn an_exit_code_has_only_its_low_eight_bits() {
    let workspace = Workspace::running(&["exec awk -f check/solution.py"]);
    let service = Setup::of(workspace).start();
    for (asked, given) in [(0, 0), (1, 1), (127, 127), (255, 255), (256, 0), (259, 3), (-1, 255)] {
        let answer = service.run(&format!("BEGIN {{ exit {asked} }}"));
        assert_eq!(answer.finished().exit_code, Some(given), "exit {asked}");
        assert_eq!(answer.header("x-run-outcome"), Some("exited"));
    }
}

#[test]
fn death_by_a_signal_is_exit_code_128_plus_its_number() {
    let service = Setup::shell().start();
    for (signal, code, words) in [
        ("HUP", 129, "Hangup\n"),
        ("INT", 130, ""),
        ("ABRT", 134, "Aborted\n"),
        ("KILL", 137, "Killed\n"),
        ("SEGV", 139, "Segmentation fault\n"),
        ("TERM", 143, "Terminated\n"),
    ] {
        let answer = service.run(&format!("kill -{signal} $$; sleep 5"));
        let finished = answer.finished();
        assert_eq!(finished.exit_code, Some(code), "SIG{signal}");
        // The shell itself is killed, so no shell prints a message.
        assert_eq!(finished.stderr, words, "SIG{signal}");
        assert_eq!(answer.header("x-run-outcome"), Some("signaled"), "SIG{signal}");
    }
}

#[test]
fn every_exceeded_limit_has_its_own_outcome() {
    let service = Setup::shell()
        .env("RUN_MEMORY_MAX", "64MiB")
        .env("RUN_PIDS_MAX", "16")
        .env("RUN_DISK_MAX", "4MiB")
        .env("RUN_FILE_MAX", "2MiB")
        .start();
    for (script, word, code) in [
        ("sleep 60", "timed_out", None),
        ("ulimit -St 1; while :; do :; done", "cpu_limit", Some(152)),
        ("head -c 200000000 /dev/zero | tail -c 150000000 >/dev/null", "memory_limit", Some(137)),
        (
            "for i in 1 2 3 4 5 6 7 8 9 a b c d e f g h; do sleep 60 & done",
            "process_limit",
            Some(2),
        ),
        (
            "for i in 1 2 3 4 5; do head -c 1000000 /dev/zero >$i || exit 7; done",
            "disk_limit",
            Some(7),
        ),
        ("exec head -c 3000000 /dev/zero >big", "disk_limit", Some(153)),
    ] {
        let timeout = if word == "timed_out" { "300ms" } else { "20s" };
        let answer = service.post(&solution_within(timeout, script));
        assert_eq!(answer.header("x-run-outcome"), Some(word), "{script}: {answer:?}");
        assert_eq!(answer.finished().exit_code, code, "{script}");
    }
}

#[test]
fn a_run_gets_no_more_than_its_cpu_quota() {
    let service = Setup::shell().env("RUN_CPUS", "0.2").start();
    let body = solution_within("1s", "while :; do :; done & while :; do :; done");
    let used: u64 = service.post(&body).header("x-run-cpu-ms").unwrap().parse().unwrap();
    let is_enforced = service.log.text().contains(r#""cpu":"cgroup"#);
    // On two whole CPUs they would use up to two seconds. A quota is exceeded by one period at
    // most.
    assert!(!is_enforced || used <= 400, "{used} ms");
}

#[test]
fn a_missing_command_is_exit_code_127_with_the_shells_message() {
    let answer = answer_of(&["no-such-command --flag"]);
    let finished = answer.finished();
    assert_eq!((finished.exit_code, finished.stdout.as_str()), (Some(127), ""));
    assert!(finished.stderr.contains("no-such-command: not found"), "{finished:?}");
}

#[test]
fn a_child_that_keeps_stdout_open_does_not_delay_the_answer_and_is_killed() {
    let service = Setup::shell().start();
    for script in
        ["sleep 60 & echo done", "setsid sleep 60 & echo done", "(sleep 60 &) ; echo done"]
    {
        let start = Instant::now();
        assert_eq!(service.run(script).stdout(), "done\n");
        assert!(start.elapsed() < Duration::from_secs(5), "{script}");
        wait_until("the child to die", Duration::from_secs(1), || {
            run_processes(service.pid()).is_empty()
        });
    }
}

#[test]
fn output_that_is_not_utf8_is_still_a_string() {
    let service = Setup::shell().start();
    for (printed, body) in [
        (r"a\377b", r#""a�b""#),
        (r"\303", r#""�""#),
        (r"\342\202", r#""�""#),
        (r"\342\202\254", r#""€""#),
        (r"\300\200", r#""��""#),
        (r"\000\001\033\t\n", r#""\u0000\u0001\u001b\t\n""#),
        (r"\177\342\200\250/", "\"\u{7f}\u{2028}/\""),
    ] {
        let answer = service.run(&format!("printf '{printed}'; printf '{printed}' >&2"));
        answer.assert_json(200, &format!(r#"{{"exit_code":0,"stdout":{body},"stderr":{body}}}"#));
    }
}

#[test]
fn truncation_never_splits_a_character() {
    let service = Setup::shell().start();
    // Wherever the limit cuts, the text before it ends with a whole character.
    let script = "while :; do printf '\\342\\202'; sleep 0.01; printf '\\254'; done";
    let answer = service.post(&solution_within("2s", script));
    let finished = answer.finished();
    assert_eq!(finished.exit_code, None);
    let whole = finished.stdout.trim_end_matches('\u{FFFD}');
    assert!(!whole.is_empty() && whole.chars().all(|c| c == '€'), "{finished:?}");
    assert!(finished.stdout.chars().count() - whole.chars().count() <= 1, "{finished:?}");
}

#[test]
fn all_recipe_lines_run_in_one_shell_that_continues_after_a_failure() {
    let workspace = Workspace::running(&["cd check", "pwd"]).with("check/x", "");
    let service = Setup::of(workspace).start();
    service
        .post(&solution(""))
        .assert_json(200, r#"{"exit_code":0,"stdout":"/workspace/check\n","stderr":""}"#);
    drop(service);
    answer_of(&["false", "echo x"])
        .assert_json(200, r#"{"exit_code":0,"stdout":"x\n","stderr":""}"#);
    answer_of(&["@echo x", "false"])
        .assert_json(200, r#"{"exit_code":1,"stdout":"x\n","stderr":""}"#);
}
