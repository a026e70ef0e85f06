//! `cofferdam exec` compared with a bare process and with other sandboxes, each as a whole process.

use std::process::Command;

use cofferdam_test_server::service::cofferdam;

use crate::bare::succeed;
use crate::peers::{Go, PEERS};
use crate::report::Report;
use crate::stats::{Pairs, millis};

pub fn measure(report: &mut Report) {
    let bare: Go = Box::new(|| millis(|| succeed(&mut Command::new("/bin/true"))));
    beside(report, "exec_bare", bare);
    for (key, peer) in PEERS {
        match peer() {
            Ok(go) => beside(report, key, go),
            Err(why) => report.leave_out(key, &why),
        }
    }
}

fn beside(report: &mut Report, key: &str, other: Go) {
    let binary = cofferdam();
    let ours = || millis(|| succeed(Command::new(&binary).args(["exec", "--", "/bin/true"])));
    let pairs = Pairs::take(report.pairs, ours, other);
    report.paired(key, &pairs);
}
