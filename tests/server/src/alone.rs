//! The machine for one test at a time.

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The files that stop and continue the builds of `ci/background`, with the words for it: of cgroup version 1
/// and 2.
const SWITCHES: [(&str, &str, &str); 2] = [
    ("/sys/fs/cgroup/freezer/cofferdam-background/freezer.state", "FROZEN", "THAWED"),
    ("/sys/fs/cgroup/cofferdam-background/cgroup.freeze", "1", "0"),
];

/// The machine, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Alone {
    _turn: MutexGuard<'static, ()>,
}

/// Waits until no other test of this process has the machine, and stops the builds in the background: even with
/// the least CPU weight they fill caches and delay wakeups. For tests with time bounds and tests that load the
/// machine.
pub fn alone() -> Alone {
    static MACHINE: Mutex<()> = Mutex::new(());
    let turn = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    set_background(|(_, stop, _)| stop);
    Alone { _turn: turn }
}

impl Drop for Alone {
    fn drop(&mut self) {
        set_background(|(_, _, go_on)| go_on);
    }
}

fn set_background(word: impl Fn((&'static str, &'static str, &'static str)) -> &'static str) {
    for switch in SWITCHES {
        // Most machines build nothing in the background.
        let _ = fs::write(switch.0, word(switch));
    }
}
