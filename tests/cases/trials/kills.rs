//! Runs that are killed, and go on.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::scene::{RunEnd, Scene};
use crate::conformance::doors::alive_with;

/// Stands in the command line of agents.
const MARKER: &str = "7531.2468";
const CELLS: u64 = 20;

/// The results that are done, by path.
fn done(scene: &Scene) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let runs = fs::read_dir(scene.store().join("cases")).into_iter().flatten().flatten();
    for run in runs {
        for cell in fs::read_dir(run.path().join("cells")).into_iter().flatten().flatten() {
            let path = cell.path().join("result.json");
            if let Ok(bytes) = fs::read(&path)
                && String::from_utf8_lossy(&bytes).contains("\"status\":\"done\"")
            {
                found.insert(path, bytes);
            }
        }
    }
    found
}

#[test]
fn a_run_that_is_killed_loses_no_cell_and_leaves_nothing_alive() {
    let blocks = format!(
        "harnesses: {{mine: {{kind: command, argv: [sh, -c, \"sleep 0.1; sleep 0.0{MARKER} & sleep 0.05\"]}}}}
matrix: {{harnesses: [mine], models: [m], trials: {CELLS}}}
graders: [{{type: command, cmd: 'true'}}]\n"
    );
    let rounds = std::env::var("CASE_KILLS").map_or(3, |text| text.parse::<u32>().unwrap());
    for round in 0..rounds {
        let Some(scene) = Scene::new(&blocks) else { return };
        let mut command = scene.command("run", &["--jobs", "3"]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Spread over the run, the moments differ from machine to machine.
        thread::sleep(Duration::from_millis(u64::from(round * 677 % 2500 + 50)));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        let before = done(&scene);
        if status.signal() == Some(9) {
            let died = Instant::now();
            while !alive_with(MARKER).is_empty() {
                assert!(died.elapsed() < Duration::from_secs(10), "{:?}", alive_with(MARKER));
                thread::sleep(Duration::from_millis(10));
            }
        }
        if !scene.store().join("cases").is_dir()
            || fs::read_dir(scene.store().join("cases")).unwrap().count() == 0
        {
            continue;
        }
        let output = scene.command("resume", &["--jobs", "3"]).output().unwrap();
        // It was killed before its manifest was whole.
        if output.status.code() == Some(2) && before.is_empty() {
            continue;
        }
        let end = RunEnd::of(&output);
        assert_eq!((end.code, end.cells()), (Some(0), [CELLS, 0, 0, 0]), "{}", end.stderr);
        let after = done(&scene);
        assert_eq!(after.len(), usize::try_from(CELLS).unwrap());
        for (path, bytes) in before {
            assert!(after[&path] == bytes, "{}", path.display());
        }
        scene.assert_nothing_left();
    }
}
