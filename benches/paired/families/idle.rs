//! A run after idleness beside one back to back: what a kernel makes the first one wait for.

use std::thread;
use std::time::Duration;

use crate::bare;
use crate::report::Report;
use crate::runner::Runner;
use crate::server::service::Setup;
use crate::stats::{Pairs, millis};

const IDLE: Duration = Duration::from_millis(50);

pub fn measure(report: &mut Report) {
    let service = Setup::of(bare::workspace(":", 10, 4096)).start();
    let mut runner = Runner::of(&service);
    let mut pairs = Pairs::default();
    for _ in 0..report.pairs {
        thread::sleep(IDLE);
        let after_idleness = millis(|| _ = runner.run());
        let back_to_back = millis(|| _ = runner.run());
        pairs.push(after_idleness, back_to_back);
    }
    report.paired("idle", &pairs);
}
