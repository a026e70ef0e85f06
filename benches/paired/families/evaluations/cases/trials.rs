//! Runs of Cases by the binary: what later trials save of the first, and what many trials cost.

use std::fs;
use std::path::Path;
use std::process::Command;

use cofferdam_test_server::service::cofferdam;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::scene::write_files;
use crate::bare::succeed;
use crate::report::Report;
use crate::stats::{Pairs, millis};

const TRIALS: u64 = 10;
const SOURCE_FILES: usize = 3_000;
const HEAD: &str = "task: {prompt: p}
matrix: {harnesses: [nop], models: [m]}
graders: [{type: command, cmd: 'true'}]
";

/// Installs a package from the source, which needs no index.
const WITH_PACKAGE: &str = "source: {path: src}
environment: {kind: pip-venv, requirements: [./tiny-1-py3-none-any.whl]}
";
const PACKAGE: &str = "import zipfile
with zipfile.ZipFile('src/tiny-1-py3-none-any.whl', 'w') as wheel:
    about = 'tiny-1.dist-info/'
    wheel.writestr('tiny.py', '')
    wheel.writestr(about + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n')
    wheel.writestr(about + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(about + 'RECORD', '')
";

pub fn measure(report: &mut Report) {
    shared(report);
    source(report);
}

/// The trials after the first take its environment.
fn shared(report: &mut Report) {
    let mut pairs = Pairs::default();
    for _ in 0..report.pairs.div_ceil(25) {
        let case = Case::new("venv", WITH_PACKAGE);
        package(&case.path());
        case.run("a", TRIALS);
        let took = case.trials_ms("a");
        pairs.push(took[1..].iter().sum(), took[0]);
    }
    report.paired("case_share", &pairs);
}

/// Makes the package in the source.
fn package(directory: &Path) {
    let made = Command::new("python3").args(["-c", PACKAGE]).current_dir(directory).status();
    assert!(made.unwrap().success(), "the package is not made");
}

/// The source is prepared once.
fn source(report: &mut Report) {
    let case = Case::new("files", "source: {path: src}\n");
    write_files(&case.path().join("src"), SOURCE_FILES);
    let mut pairs = Pairs::default();
    for pair in 0..report.pairs.div_ceil(10) {
        let ten = || millis(|| case.run(&format!("ten-{pair}"), TRIALS));
        let one = || millis(|| case.run(&format!("one-{pair}"), 1));
        let (ten, one) = if pair % 2 == 0 {
            let ten = ten();
            (ten, one())
        } else {
            let one = one();
            (ten(), one)
        };
        pairs.push(ten, one);
    }
    report.paired("case_source", &pairs);
}

/// A Case, and the store of its runs.
struct Case {
    id: &'static str,
    place: TempDir,
}

impl Case {
    fn new(id: &'static str, blocks: &str) -> Self {
        let case = Self { id, place: tempdir().unwrap() };
        fs::create_dir_all(case.path().join("src")).unwrap();
        fs::write(case.path().join("case.yaml"), format!("id: {id}\n{HEAD}{blocks}")).unwrap();
        case
    }

    fn path(&self) -> std::path::PathBuf {
        self.place.path().join("case")
    }

    fn store(&self) -> std::path::PathBuf {
        self.place.path().join("store")
    }

    /// Runs so many trials, one after the other.
    fn run(&self, id: &str, trials: u64) {
        let mut command = Command::new(cofferdam());
        command.args(["case", "run"]).arg(self.path()).arg("--store-dir").arg(self.store());
        succeed(command.args(["--run-id", id, "--trials", &trials.to_string()]));
    }

    /// How long each trial of a run took.
    fn trials_ms(&self, run: &str) -> Vec<f64> {
        let cells = self.store().join("cases").join(run).join("cells");
        let wall_ms = |trial| {
            let cell = cells.join(format!("{}__nop__m__t{trial}", self.id));
            read(&cell.join("result.json"))["timing"]["wall_ms"].as_f64().unwrap()
        };
        (1..=TRIALS).map(wall_ms).collect()
    }
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
