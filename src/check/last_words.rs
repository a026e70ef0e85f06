//! What a shell would say of a program that a signal ended.
//!
//! A check's program has none above it that could: its recipe ends in `exec`, or is a plain command
//! that needs no shell. Its author would read nothing at all.

use cofferdam_core::{LimitKind, Outcome, RunReport};

/// Adds what a shell would say to the run's stderr, and tells it; none where it would say nothing
/// or has said it.
pub fn add_last_words(run: &mut RunReport) -> Option<String> {
    let words = shell_words(deadly_signal(run.outcome)?)?;
    if is_limit(run.outcome) && run.stderr.text().contains(words) {
        // Its own shell passed the code on.
        return None;
    }
    let stderr = &mut run.stderr;
    let line_end = if stderr.bytes.last().is_none_or(|byte| *byte == b'\n') { "" } else { "\n" };
    let text = format!("{line_end}{words}\n");
    stderr.bytes.extend_from_slice(text.as_bytes());
    stderr.bytes_total = stderr.bytes_total.saturating_add(text.len() as u64);
    Some(text)
}

fn is_limit(outcome: Outcome) -> bool {
    outcome.limit().is_some()
}

/// The signal that ended the program, unless we sent it because its time was up or it printed too
/// much.
fn deadly_signal(outcome: Outcome) -> Option<i32> {
    match outcome {
        Outcome::Signaled { signal } => Some(signal),
        Outcome::LimitHit {
            kind: LimitKind::Memory | LimitKind::CpuTime | LimitKind::Disk,
            code: Some(code),
        } => {
            let signal = i32::from(code) - 128;
            [libc::SIGKILL, libc::SIGXCPU, libc::SIGXFSZ].contains(&signal).then_some(signal)
        }
        _ => None,
    }
}

/// As dash and bash have it; of SIGINT and SIGPIPE they say nothing.
fn shell_words(signal: i32) -> Option<&'static str> {
    Some(match signal {
        libc::SIGHUP => "Hangup",
        libc::SIGQUIT => "Quit",
        libc::SIGILL => "Illegal instruction",
        libc::SIGTRAP => "Trace/breakpoint trap",
        libc::SIGABRT => "Aborted",
        libc::SIGBUS => "Bus error",
        libc::SIGFPE => "Floating point exception",
        libc::SIGKILL => "Killed",
        libc::SIGUSR1 => "User defined signal 1",
        libc::SIGSEGV => "Segmentation fault",
        libc::SIGUSR2 => "User defined signal 2",
        libc::SIGALRM => "Alarm clock",
        libc::SIGTERM => "Terminated",
        libc::SIGSTKFLT => "Stack fault",
        libc::SIGXCPU => "CPU time limit exceeded",
        libc::SIGXFSZ => "File size limit exceeded",
        libc::SIGVTALRM => "Virtual timer expired",
        libc::SIGPROF => "Profiling timer expired",
        libc::SIGIO => "I/O possible",
        libc::SIGPWR => "Power failure",
        libc::SIGSYS => "Bad system call",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::{CapturedStream, Enforced, Timings, Usage};

    fn run(outcome: Outcome, stderr: &str) -> RunReport {
        let captured = |text: &str| CapturedStream {
            bytes: text.as_bytes().to_vec(),
            bytes_total: text.len() as u64,
            truncated: false,
        };
        let usage = Usage {
            wall_ms: 0,
            cpu_ms: 0,
            memory_peak_bytes: 0,
            memory_peak_source: "rusage",
            processes_peak: None,
            oom_kills: None,
            stdout_bytes: 0,
            stderr_bytes: stderr.len() as u64,
        };
        RunReport {
            outcome,
            stdout: captured(""),
            stderr: captured(stderr),
            usage,
            enforced: Enforced::default(),
            not_enforced: Vec::new(),
            timings: Timings::default(),
            standby: false,
        }
    }

    #[track_caller]
    fn check(outcome: Outcome, printed: &str, want: &str) {
        let mut run = run(outcome, printed);
        let said = add_last_words(&mut run);
        assert_eq!(run.stderr.text(), want, "{outcome:?}");
        assert_eq!(run.stderr.bytes_total, want.len() as u64);
        assert_eq!(format!("{printed}{}", said.unwrap_or_default()), want);
    }

    #[test]
    fn a_program_that_a_signal_ended_has_it_named_on_a_line_of_its_own() {
        let ended_by = |signal| Outcome::Signaled { signal };
        check(ended_by(libc::SIGSEGV), "", "Segmentation fault\n");
        check(ended_by(libc::SIGABRT), "assertion\n", "assertion\nAborted\n");
        check(ended_by(libc::SIGFPE), "no end", "no end\nFloating point exception\n");
        check(ended_by(libc::SIGPIPE), "", "");
        check(ended_by(libc::SIGINT), "", "");
        check(ended_by(40), "", "");
    }

    #[test]
    fn the_kill_of_a_limit_is_named_once_and_ours_never() {
        let limit = |kind, code| Outcome::LimitHit { kind, code };
        check(limit(LimitKind::Memory, Some(137)), "", "Killed\n");
        check(limit(LimitKind::Memory, Some(137)), "Killed\n", "Killed\n");
        check(limit(LimitKind::Memory, Some(1)), "no memory", "no memory");
        check(limit(LimitKind::CpuTime, Some(152)), "", "CPU time limit exceeded\n");
        check(limit(LimitKind::WallTime, None), "", "");
        check(Outcome::Exited { code: 139 }, "", "");
        check(Outcome::Cancelled, "", "");
    }
}
