//! The system calls of one `cofferdam exec`, from start to end.

use std::fs;

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::service::cofferdam;

use crate::ceilings::{EXEC, PER_OTHER_SERVER};
use crate::counts::{Counts, Window};
use crate::strace::{can_trace, trace_of};

/// The number of commands per median.
const RUNS: usize = 5;

#[test]
fn a_command_in_a_sandbox_stays_below_its_system_call_ceiling() {
    if !can_trace() {
        return;
    }
    let _alone = alone();
    let ceilings = EXEC.and(PER_OTHER_SERVER * other_servers());
    let binary = cofferdam();
    let command = [binary.to_str().unwrap(), "exec", "--", "/bin/true"];
    let mut calls = Vec::new();
    let mut windows = Vec::new();
    for _ in 0..RUNS {
        let trace = trace_of(&command);
        let times = || trace.calls.iter().map(|call| call.at);
        let (began, over) = (times().fold(f64::MAX, f64::min), times().fold(f64::MIN, f64::max));
        // The end of the command counts as the answer.
        windows.push(Window { began, answered: over, over: over.next_up() });
        calls.extend(trace.calls);
    }
    Counts::of(&calls, &windows).hold("exec -- /bin/true", &ceilings);
}

/// The number of servers and commands that are registered on this host.
fn other_servers() -> usize {
    fs::read_dir("/run/cofferdam/instances").map_or(0, Iterator::count)
}
