//! The start of `cofferdam exec` compared with that of a bare process and of other sandboxes, each as whole processes.

pub mod peers;

use std::process::Command;

use crate::bare::succeed;
use crate::peers::{ISOLATE_RUN, OURS, PEERS};
use crate::report::Report;
use crate::stats::{Pairs, millis};

const PROGRAM: [&str; 1] = ["/bin/true"];

pub fn measure(report: &mut Report) {
    beside(report, "exec_bare", || millis(|| succeed(&mut Command::new(PROGRAM[0]))));
    for peer in PEERS.iter().chain([&ISOLATE_RUN]) {
        let key = format!("exec_{}", peer.key);
        match peer.ready(None, &[&PROGRAM]) {
            Ok(mut sandbox) => beside(report, &key, || sandbox.time(&PROGRAM)),
            Err(why) => report.leave_out(&key, &why),
        }
    }
}

fn beside(report: &mut Report, key: &str, other: impl FnMut() -> f64) {
    let mut ours = (OURS.prepare)(None).unwrap();
    let pairs = Pairs::take(report.pairs, || ours.time(&PROGRAM), other);
    report.paired(key, &pairs);
}
