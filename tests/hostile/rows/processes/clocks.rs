//! Time limits, CPU accounting and clocks.

use cofferdam_test_server::client::post;

use super::{figure, timed_out};
use crate::Unexercised;
use crate::observe::{assert_answers, number_of, pairs_of};
use crate::probe::Probe;
use crate::target::Target;

/// The most CPU time that starting a harness takes, in milliseconds.
const HARNESS_CPU_MS_MAX: u64 = 1_500;

pub fn time_is_up(target: &Target) -> Result<(), Unexercised> {
    let idle = Probe::inline("import time\ndef probe():\n    time.sleep(15)");
    let answer = timed_out(target, &idle, 0);
    let cpu_ms = figure(&answer, "x-run-cpu-ms");
    assert!(cpu_ms < HARNESS_CPU_MS_MAX, "{cpu_ms} ms of CPU asleep");

    let answer = timed_out(target, &Probe::program("burn").arg("processes").arg("8"), 4);
    let told = pairs_of(&answer);
    assert_cpu_limit(&told, 8);
    let (cpu_ms, wall_ms) = (figure(&answer, "x-run-cpu-ms"), figure(&answer, "x-run-wall-ms"));
    let cpus = number_of(&told, "cpus");
    assert!(cpu_ms <= cpus * wall_ms + HARNESS_CPU_MS_MAX, "{cpu_ms} ms of CPU in {wall_ms} ms");

    // One process with eight threads may reach its CPU limit before its timeout.
    let answer = target.run(&Probe::program("burn").arg("threads").arg("8").within("2s"));
    assert_cpu_limit(&pairs_of(&answer), 2);
    let outcome = answer.header("x-run-outcome").unwrap_or_default();
    assert!(["cpu_limit", "timed_out"].contains(&outcome), "{answer:?}");
    let wall_ms = figure(&answer, "x-run-wall-ms");
    assert!(wall_ms < 10_000, "{wall_ms} ms");
    Ok(())
}

/// What a runtime that was started ahead may have used before its run, in whole seconds: its limit is
/// higher by that.
const AHEAD_SECONDS_MAX: u64 = 1;

/// Each process has the timeout as its CPU limit, and at most one second after the warning.
fn assert_cpu_limit(told: &[(String, String)], seconds_max: u64) {
    let (limit, hard) = (number_of(told, "limit"), number_of(told, "hard"));
    assert!(limit <= seconds_max + AHEAD_SECONDS_MAX && hard <= limit + 1, "{told:?}");
    assert!(told.contains(&("raise".to_owned(), "EPERM".to_owned())), "{told:?}");
}

pub fn unreaped_time(target: &Target) -> Result<(), Unexercised> {
    let answer = target.run(&Probe::program("reaped"));
    assert_eq!(answer.finished().exit_code, Some(0), "{answer:?}");
    let told = pairs_of(&answer);
    let (wanted, spent) = (number_of(&told, "wanted_ms"), number_of(&told, "spent_ms"));
    assert!(spent >= wanted, "{told:?}");
    let counted = figure(&answer, "x-run-cpu-ms");
    assert!(counted * 10 >= spent * 9, "{counted} of {spent} ms were counted");
    Ok(())
}

pub fn moved_clocks(target: &Target) -> Result<(), Unexercised> {
    let refused = "EPERM|ENOSYS";
    let absent = "ENOENT|EACCES|EPERM|EROFS";
    let expected = [
        ("clock_gettime", "done"),
        ("timer", "done"),
        ("clock_settime", refused),
        ("settimeofday", refused),
        ("adjtimex", refused),
        ("clock_adjtime", refused),
        // EOPNOTSUPP: this machine has no such clock.
        ("alarm_timer", "EPERM|ENOSYS|EOPNOTSUPP"),
        ("unshare", refused),
        ("unshare_user", refused),
        ("clone3", "ENOSYS"),
        ("offsets", absent),
        ("rtc", absent),
        ("ptp", absent),
    ];
    let answer = target.run(&Probe::program("clocks"));
    assert_answers(&pairs_of(&answer), &expected);
    Ok(())
}

pub fn malformed_timeouts(target: &Target) -> Result<(), Unexercised> {
    let ask = |timeout: serde_json::Value| {
        let mut body = Probe::inline("def probe():\n    return None").body(target.slug());
        body["timeout"] = timeout;
        target.ask(post("", body.to_string()))
    };
    let long = "9".repeat(5_000) + "s";
    for timeout in [
        "",
        "0",
        "5",
        "s",
        "ms",
        "m",
        "0h",
        "1h",
        "1d",
        "1e9h",
        "1e3s",
        "1.5s",
        ".5s",
        "-1s",
        "-0s",
        "+5s",
        " 5s",
        "5 s",
        "5s ",
        "5s\n",
        "5s\0",
        "1S",
        "1MS",
        "1us",
        "1ns",
        "1_0s",
        "0x5s",
        "NaN",
        "NaNs",
        "inf",
        "infs",
        "null",
        "1s1s",
        "1m30s",
        "٥s",
        "１s",
        "1s;1s",
        "340282366920938463463374607431768211456s",
        &long,
    ] {
        ask(timeout.into()).assert_json(400, r#"{"error":"invalid timeout"}"#);
    }
    for timeout in [
        "100000s",
        "9999m",
        "999999999ms",
        "99999999999999s",
        "18446744073709551615s",
        "18446744073709551616ms",
        "307445734561825861m",
    ] {
        ask(timeout.into()).assert_error_naming(400, "timeout");
    }
    for timeout in ["0", "-1", "1e309", "5.5", "true", "[]", "{}", "[\"5s\"]"] {
        let body = Probe::inline("").body(target.slug()).to_string();
        let body = body.replace(r#""timeout":"20s""#, &format!(r#""timeout":{timeout}"#));
        let answer = target.ask(post("", body));
        assert_eq!(answer.status, 400, "{timeout}: {answer:?}");
    }
    // Without this limit it would last longer than any of ours takes to act.
    for timeout in ["0s", "0ms", "0m", "1ms"] {
        let idle = Probe::inline("import time\ndef probe():\n    time.sleep(15)").within(timeout);
        let answer = target.ask(post("", idle.body(target.slug()).to_string()));
        assert_eq!(answer.finished().exit_code, None, "{timeout}: {answer:?}");
    }
    Ok(())
}
