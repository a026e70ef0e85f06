//! Requests through rules, with the goals of issue 18.

mod memory;
mod requests;
mod scene;
mod transfers;

use self::scene::EgressBench;
use crate::report::Report;

pub fn measure(report: &mut Report) {
    let mut scene = EgressBench::start();
    requests::measure(report, &mut scene);
    transfers::measure(report, &mut scene);
    drop(scene);
    memory::measure(report);
}
