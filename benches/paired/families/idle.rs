//! A run after an idle pause compared with back-to-back runs: the kernel delays the former.

use std::thread;
use std::time::Duration;

use cofferdam_test_server::service::Setup;

use crate::bare;
use crate::report::Report;
use crate::runner::Runner;
use crate::stats::{Pairs, millis};

const IDLE: Duration = Duration::from_millis(50);

pub fn measure(report: &mut Report) {
    let setup = || Setup::of(bare::workspace(":", 10, 4096));
    compare(report, "idle", setup());
    // Without a standby pool, each sandbox is created when its run arrives.
    compare(report, "idle_none_prepared", setup().env("STANDBY_MAX", "0"));
}

fn compare(report: &mut Report, key: &str, setup: Setup) {
    let service = setup.start();
    let mut runner = Runner::of(&service);
    let mut pairs = Pairs::default();
    for pair in 0..=report.pairs {
        thread::sleep(IDLE);
        let after_idleness = millis(|| _ = runner.run());
        let back_to_back = millis(|| _ = runner.run());
        // The first run creates what the service creates only once.
        if pair > 0 {
            pairs.push(after_idleness, back_to_back);
        }
    }
    report.paired(key, &pairs);
}
