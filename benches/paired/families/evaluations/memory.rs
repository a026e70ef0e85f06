//! The peak of the service's memory while it takes a large archive.

use std::fs;
use std::process::Command;

use super::scene::{Evaluations, agent};
use crate::families::memory::{ServicePeak, row};
use crate::report::Report;

/// Bytes of random files in the archive, below EVAL_ARCHIVE_MAX.
const BYTES: &str = "104000000";

pub fn measure(report: &mut Report) {
    let taken: Vec<ServicePeak> = (0..report.pairs.div_ceil(10))
        .map(|_| {
            let scene = Evaluations::start();
            let task = scene.scratch("large.task");
            fs::create_dir_all(task.join("files")).unwrap();
            fs::create_dir_all(task.join("tests")).unwrap();
            fs::write(task.join("workspace.yaml"), "files: files\n").unwrap();
            fs::write(task.join("prompt.md"), "").unwrap();
            fs::write(task.join("tests/fail_to_pass_1.sh"), "exit 0\n").unwrap();
            let script = format!("head -c {BYTES} /dev/urandom >files/large");
            let made = Command::new("sh").args(["-c", &script]).current_dir(&task).status();
            assert!(made.unwrap().success());
            let served = scene.serve_directory("large", &task);
            let small = scene.serve(
                "small",
                &[
                    ("workspace.yaml", "files: files\n"),
                    ("prompt.md", ""),
                    ("files/a", ""),
                    ("tests/fail_to_pass_1.sh", "exit 0\n"),
                ],
            );
            scene.resolve(&agent(&small, ":"));
            ServicePeak::during(scene.service.pid(), || {
                scene.resolve(&agent(&served, ":"));
            })
        })
        .collect();
    row(report, "evaluation_archive", &taken);
}
