//! Workspaces, with the goals of issue 16.

pub mod egress;
mod forks;
mod idle;
mod living;
mod memory;
mod programs;
mod saves;
mod scene;
mod sessions;

use crate::report::Report;

pub fn measure(report: &mut Report) {
    programs::measure(report);
    living::measure(report);
    sessions::measure(report);
    forks::measure(report);
    saves::measure(report);
    idle::measure(report);
    memory::measure(report);
}
