//! Adds the line that a shell prints when a signal ends a program.
//!
//! The program of a check has no shell above it: its recipe ends in `exec`, or is a plain command.
//! Without this line its author would see no reason.

use cofferdam_core::{LimitKind, Outcome, RunReport};

/// Adds the line of a shell to the run's stderr, and returns it. Returns nothing if a shell would
/// print nothing or has printed it.
pub fn add_last_words(run: &mut RunReport) -> Option<String> {
    let words = shell_words(deadly_signal(run.outcome)?)?;
    if is_limit(run.outcome) && run.stderr.text().contains(words) {
        // A shell of the recipe has printed it and passed the code on.
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

/// The signal that ended the program, unless the supervisor sent it because of the wall time or the
/// output limit.
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

/// The words of dash and bash, which print nothing for SIGINT and SIGPIPE.
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
    fn a_signal_is_named_on_its_own_line() {
        let ended_by = |signal| Outcome::Signaled { signal };
        check(ended_by(libc::SIGSEGV), "", "Segmentation fault\n");
        check(ended_by(libc::SIGABRT), "assertion\n", "assertion\nAborted\n");
        check(ended_by(libc::SIGFPE), "no end", "no end\nFloating point exception\n");
        check(ended_by(libc::SIGPIPE), "", "");
        check(ended_by(libc::SIGINT), "", "");
        check(ended_by(40), "", "");
    }

    #[test]
    fn the_signal_of_a_kernel_limit_is_named_once_and_ours_never() {
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
