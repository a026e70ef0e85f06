//! A run of many Cells at the same time keeps its size and leaves nothing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use cofferdam_test_server::host::Footprint;
use serde_json::Value;

use super::scene::Scene;
use crate::conformance::doors::alive_with;
use crate::conformance::engine::{IMAGE, TestEngine};

/// Stands in the command line of what an agent leaves.
const MARKER: &str = "9513.8642";
/// How much larger the process may be at the end than when all its workers have worked.
const GROWTH_BYTES_MAX: u64 = 32 << 20;
const CELLS_DEFAULT: u64 = 40;
/// How long the end of what a run has left may take.
const END_WAIT: Duration = Duration::from_secs(30);

fn cells() -> u64 {
    std::env::var("CASE_CELLS").map_or(CELLS_DEFAULT, |text| text.parse().unwrap())
}

/// What was seen of a run.
struct Watched {
    /// Resident bytes of its process as each Cell ended. There is none where the process had ended by then.
    resident_bytes: Vec<u64>,
    footprint: Option<Footprint>,
}

impl Watched {
    /// Follows the run until it closes its stderr.
    fn follow(pid: u32, stderr: ChildStderr) -> Self {
        let mut watched = Self { resident_bytes: Vec::new(), footprint: None };
        for line in BufReader::new(stderr).lines().map(Result::unwrap) {
            if line.ends_with(" running") {
                let pid = i32::try_from(pid).unwrap();
                watched.footprint.get_or_insert_with(|| Footprint::of(pid));
            } else {
                assert!(line.contains(" passed "), "{line}");
                watched.resident_bytes.extend(resident_bytes(pid));
            }
        }
        watched
    }

    /// Fails if the process has grown since `cells` Cells had ended.
    fn assert_flat_since(&self, cells: usize) {
        let [settled, end] = [cells - 1, self.resident_bytes.len() - 1]
            .map(|index| self.resident_bytes.get(index).copied().unwrap());
        println!("{settled} bytes after {cells} Cells, {end} at the end");
        assert!(end < settled + GROWTH_BYTES_MAX, "{:?}", self.resident_bytes);
    }
}

/// The resident memory of a process, unless it has ended.
fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

fn begun(scene: &Scene, arguments: &[&str], path: Option<String>) -> (Child, ChildStderr) {
    let mut command = scene.command("run", arguments);
    command.envs(path.map(|path| ("PATH", path)));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    (child, stderr)
}

fn case(cells: u64, more: &str) -> Option<Scene> {
    Scene::new(&format!(
        "{more}environment: {{kind: command, commands: ['echo made > made']}}
harnesses: {{mine: {{kind: command, argv: [sh, -c, \"setsid sleep {MARKER} & seq 20000 > work; cat work\"]}}}}
matrix: {{harnesses: [mine], models: [m], trials: {cells}}}
graders:
- {{type: command, cmd: 'test $(wc -l < work) = 20000'}}
- {{type: command, cmd: test -e made}}
"
    ))
}

/// Runs all Cells with that many at a time.
fn run(scene: &Scene, cells: u64, arguments: &[&str], path: Option<String>) -> Watched {
    let (child, stderr) = begun(scene, arguments, path);
    let watched = Watched::follow(child.id(), stderr);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["cells"]["done"], &answer["passed"]), (&cells.into(), &cells.into()));
    let began = Instant::now();
    while !alive_with(MARKER).is_empty() {
        assert!(began.elapsed() < END_WAIT, "{:?}", alive_with(MARKER));
        std::thread::sleep(Duration::from_millis(10));
    }
    watched.footprint.as_ref().unwrap().assert_gone();
    scene.assert_nothing_left();
    watched
}

#[test]
fn many_cells_at_a_time_keep_the_size_of_the_process_and_leave_nothing() {
    let cells = cells();
    let settled = usize::try_from(cells / 2).unwrap().min(40);
    for executor in ["sandboxed", "local"] {
        let Some(scene) = case(cells, "") else { return };
        let watched = run(&scene, cells, &["--jobs", "20", "--executor", executor], None);
        watched.assert_flat_since(settled);
    }
}

/// A container takes seconds: the ordinary suite has a few.
#[test]
fn many_containers_at_a_time_leave_nothing() {
    let cells = (cells() / 10).max(4);
    let place = tempfile::tempdir().unwrap();
    let Some(scene) = case(cells, &format!("container: {{image: '{IMAGE}'}}\n")) else { return };
    let Some(engine) = TestEngine::new(place.path()) else { return };
    run(&scene, cells, &["--jobs", "4"], Some(engine.search_path()));
    assert_eq!(engine.left(), "");
}
