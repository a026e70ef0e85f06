//! Evaluations over HTTP, with the goals of issue 17.

pub mod cases;
mod ends;
mod memory;
mod scene;
mod times;

use crate::report::Report;

pub fn measure(report: &mut Report) {
    times::measure(report);
    ends::measure(report);
    memory::measure(report);
}
