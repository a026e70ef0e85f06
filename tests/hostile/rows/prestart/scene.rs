//! A service whose workspace starts a shell ahead of its runs.

use std::time::Duration;

use cofferdam_test_server::host::{Footprint, inits};
use cofferdam_test_server::prestart::metric;
use cofferdam_test_server::service::{Service, Setup, wait_until};
use cofferdam_test_server::workspace::{RUN_SOLUTION, Workspace};

use crate::target::Own;

/// How long a program may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Waits for the run, and goes on as it.
pub const GOES_ON: &str = "while read line; do :; done; exec sh ./*/[sS]olution.* </dev/null";

/// A server that starts `prestart` ahead of its runs.
pub fn prestarting(own: &Own, prestart: &str) -> Setup {
    let prestart = prestart.replace('$', "$$");
    let makefile =
        format!(".PHONY: test prestart\ntest:\n\t{RUN_SOLUTION}\nprestart:\n\t{prestart}\n");
    own.like(Setup::of(Workspace::empty().with("Makefile", &makefile))).env("STANDBY_MAX", "2")
}

/// How many programs got ready, or did not.
pub fn tried(service: &Service) -> f64 {
    metric(service, "boxes_made_total") + metric(service, "boxes_failed_total")
}

/// Posts runs before, while and after `prestart` is tried, which all have the answer of a run that
/// starts its own program.
#[track_caller]
pub fn assert_costs_no_run(own: &Own, prestart: &str) -> Service {
    let service = prestarting(own, prestart).start();
    assert_answers(&service, prestart);
    wait_until(&format!("a try of {prestart}"), PATIENCE, || tried(&service) >= 1.0);
    for _ in 0..3 {
        assert_answers(&service, prestart);
    }
    service
}

#[track_caller]
pub fn assert_answers(service: &Service, prestart: &str) {
    let answer = service.run("ls check; cat; echo err >&2; exit 3");
    let finished = answer.finished();
    assert_eq!(finished.stdout, "solution.py\n", "{prestart}: {answer:?}");
    assert_eq!((finished.stderr.as_str(), finished.exit_code), ("err\n", Some(3)), "{prestart}");
}

/// Stops the service, which leaves no process, group or directory.
#[track_caller]
pub fn assert_leaves_nothing(mut service: Service, prestart: &str) {
    let footprint = Footprint::of(service.pid());
    service.stop();
    assert_eq!(inits(service.pid()).len(), 0, "{prestart}");
    wait_until(&format!("the end of {prestart}"), PATIENCE, || footprint.is_gone());
}
