//! `case run` and `case resume` with scripted Cells.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use clap::{Parser, Subcommand};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::resume::CaseResumeCommand;
use super::run::{CaseRunCommand, CellRunnerSource, RunnerRequest};
use crate::case::run::{
    CellEnd, CellFault, CellFilesDir, CellResult, CellRunner, CellStatus, PlannedCell, RunFolder,
};
use crate::cli::failure::Failure;
use cofferdam_core::sync::cancel::CancelToken;

/// Set in the child process: the directory with the Case and the store.
const CHILD: &str = "COFFERDAM_TEST_CASE_SIGNAL";
const YAML: &str = "id: c
task: {prompt: p}
harnesses: {mine: {kind: command, argv: [a]}, other: {kind: command, argv: [a]}}
matrix: {harnesses: [nop, mine, other], models: [m, n]}
";

#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    command: TestedCommand,
}

#[derive(Debug, Subcommand)]
enum TestedCommand {
    Run(Box<CaseRunCommand>),
    Resume(CaseResumeCommand),
}

/// A runner whose Cells end as a function says.
#[derive(Clone, Copy)]
struct Scripted {
    digest: &'static str,
    end: fn(&PlannedCell, &CancelToken) -> CellEnd,
}

impl CellRunner for Scripted {
    fn run_cell(&self, cell: &PlannedCell, _: &CellFilesDir, stop: &CancelToken) -> CellEnd {
        (self.end)(cell, stop)
    }
}

impl CellRunnerSource for Scripted {
    fn source_digest(&self, _: &RunnerRequest<'_>) -> Result<String, Failure> {
        Ok(self.digest.to_owned())
    }

    fn cell_runner(&self, _: &RunnerRequest<'_>) -> Result<Box<dyn CellRunner>, Failure> {
        Ok(Box::new(*self))
    }
}

fn scripted(end: fn(&PlannedCell, &CancelToken) -> CellEnd) -> Scripted {
    Scripted { digest: "d", end }
}

fn scene() -> TempDir {
    let scene = tempfile::tempdir().unwrap();
    fs::create_dir(scene.path().join("case")).unwrap();
    fs::write(scene.path().join("case/case.yaml"), YAML).unwrap();
    scene
}

/// Runs a command line, whose words `CASE` and `STORE` stand for those of the scene.
fn command(scene: &Path, line: &str, source: &Scripted) -> Result<u8, String> {
    let place = |word: &str| match word {
        "CASE" => scene.join("case").to_str().unwrap().to_owned(),
        "STORE" => scene.join("store").to_str().unwrap().to_owned(),
        word => word.to_owned(),
    };
    let words = line.split_whitespace().map(place);
    let parsed = Line::try_parse_from(words).map_err(|error| error.to_string())?;
    let ended = match parsed.command {
        TestedCommand::Run(run) => run.run(source),
        TestedCommand::Resume(resume) => resume.run(source),
    };
    ended.map_err(|failure| {
        assert_eq!(failure.code(), 2, "{failure}");
        failure.to_string()
    })
}

fn done(passed: bool) -> CellEnd {
    CellEnd { overall_passed: Some(passed), ..CellEnd::of(CellStatus::Done) }
}

fn failed(code: &str) -> CellEnd {
    let word = |text: &str| text.to_owned();
    CellEnd::failed(CellFault { code: word(code), step: word("s"), message: word("m"), tail: None })
}

/// The results of the run `id` as `results.jsonl` has them.
fn results(scene: &Path, id: &str) -> Vec<CellResult> {
    let path = scene.join("store/cases").join(id).join("results.jsonl");
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ids(scene: &Path, id: &str) -> Vec<String> {
    results(scene, id).into_iter().map(|result| result.cell.id).collect()
}

#[test]
fn options_choose_the_cells_of_a_run() {
    let scene = scene();
    let passing = scripted(|_, _| done(true));
    let run = |line: &str| command(scene.path(), line, &passing);
    assert_eq!(run("run CASE --store-dir STORE --run-id all --jobs 3"), Ok(0));
    assert_eq!(ids(scene.path(), "all").len(), 6);
    let line = "run CASE --store-dir STORE --run-id some --harness mine --harness nop --model n --trials 2 --executor local --keep";
    assert_eq!(run(line), Ok(0));
    let wanted = ["c__nop__n__t1", "c__nop__n__t2", "c__mine__n__t1", "c__mine__n__t2"];
    assert_eq!(ids(scene.path(), "some"), wanted);
    let manifest = fs::read_to_string(scene.path().join("store/cases/some/manifest.json")).unwrap();
    assert!(manifest.contains(r#""options":{"executor":"local","keep":true}"#), "{manifest}");
}

#[test]
fn a_bad_request_is_refused_before_anything_runs() {
    let scene = scene();
    let panicking = scripted(|_, _| panic!("nothing runs"));
    for (line, words) in [
        ("run CASE --store-dir STORE --harness gone", "no harness \"gone\""),
        ("run CASE --store-dir STORE --model gone", "no model \"gone\""),
        ("run CASE --store-dir STORE --trials 10001", "10001 trials"),
        ("run CASE --store-dir STORE --trials 0", "--trials"),
        ("run CASE --store-dir STORE --jobs 0", "--jobs"),
        ("run CASE --store-dir STORE --run-id .x", "--run-id"),
        ("run CASE --store-dir STORE --executor vm", "--executor"),
        ("run STORE --store-dir STORE", "there is no file"),
        ("resume gone --store-dir STORE", "no run \"gone\""),
        ("resume CASE --store-dir STORE", "no run"),
    ] {
        let refused = command(scene.path(), line, &panicking).unwrap_err();
        assert!(refused.contains(words), "{line}: {refused}");
    }
}

#[test]
fn the_exit_code_tells_what_the_cells_have_come_to() {
    let scene = scene();
    let by_model: fn(&PlannedCell, &CancelToken) -> CellEnd =
        |cell, _| match (cell.harness.as_str(), cell.model.as_str()) {
            ("nop", _) => done(false),
            ("mine", "m") => done(true),
            ("mine", _) => done(false),
            (_, "m") => failed("setup.failed"),
            _ => failed("backend.unavailable"),
        };
    for (id, options, wanted) in [
        ("a", "--harness nop --harness mine --model m", 0),
        ("b", "--harness nop --harness mine", 1),
        ("c", "--harness mine --harness other --model m", 4),
        ("d", "", 5),
    ] {
        let line = format!("run CASE --store-dir STORE --run-id {id} {options}");
        assert_eq!(command(scene.path(), &line, &scripted(by_model)), Ok(wanted), "{line}");
    }
    let again = command(scene.path(), "run CASE --store-dir STORE --run-id a", &scripted(by_model));
    assert_eq!(again, Err("a run a is there already".to_owned()));
}

#[test]
fn a_run_is_resumed_unless_its_case_or_source_changed_or_it_is_in_use() {
    let scene = scene();
    let failing =
        scripted(|cell, _| if cell.model == "m" { done(true) } else { failed("setup.failed") });
    assert_eq!(command(scene.path(), "run CASE --store-dir STORE --run-id r", &failing), Ok(4));
    let passing = scripted(|_, _| done(true));
    let resume = |line: &str, source: &Scripted| command(scene.path(), line, source);

    let changed = Scripted { digest: "e", ..passing };
    let refused = resume("resume r --store-dir STORE", &changed).unwrap_err();
    assert!(refused.contains("the source changed"), "{refused}");
    let file = scene.path().join("case/case.yaml");
    fs::write(&file, format!("{YAML}description: d\n")).unwrap();
    let refused = resume("resume r --store-dir STORE", &passing).unwrap_err();
    assert!(refused.contains("the Case changed"), "{refused}");
    fs::write(&file, YAML).unwrap();
    let folder = RunFolder::open(&scene.path().join("store")).unwrap().unwrap();
    let locked = folder.lock("r").unwrap();
    let refused = resume("resume r --store-dir STORE", &passing).unwrap_err();
    assert!(refused.contains("in use"), "{refused}");
    drop(locked);

    assert_eq!(resume("resume CASE --store-dir STORE --jobs 2", &passing), Ok(0));
    let attempts: Vec<u64> =
        results(scene.path(), "r").iter().map(|result| result.attempt).collect();
    assert_eq!(attempts, [1, 2, 1, 2, 1, 2]);
}

#[test]
fn a_signal_leaves_the_cells_pending_and_is_the_exit_code() {
    let waiting = scripted(|cell, stop| {
        if cell.id == "c__nop__m__t1" {
            return done(true);
        }
        println!("\nrunning");
        let mut fds =
            [nix::poll::PollFd::new(std::os::fd::AsFd::as_fd(stop), nix::poll::PollFlags::POLLIN)];
        while nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE).is_err() {}
        CellEnd::of(CellStatus::Pending)
    });
    if let Some(scene) = env::var_os(CHILD) {
        let line = "run CASE --store-dir STORE --run-id r";
        println!("\ncode {}", command(Path::new(&scene), line, &waiting).unwrap());
        return;
    }
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let scene = scene();
        let test = "a_signal_leaves_the_cells_pending_and_is_the_exit_code";
        let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
        let mut child = Command::new("/proc/self/exe")
            .args([name.as_str(), "--exact", "--nocapture"])
            .env(CHILD, scene.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "running"));
        kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
        let rest: Vec<String> = lines.collect();
        child.wait().unwrap();
        assert!(rest.contains(&format!("code {code}")), "{rest:?}");
        let answer = rest.iter().find(|line| line.starts_with(r#"{"run_id":"r","dir":"#)).unwrap();
        let counts =
            r#""cells":{"done":1,"failed":0,"skipped":0,"pending":5},"passed":1,"not_passed":0}"#;
        assert!(answer.ends_with(counts), "{answer}");
        let statuses: Vec<CellStatus> =
            results(scene.path(), "r").iter().map(|result| result.end.status).collect();
        assert_eq!(statuses[1..], [CellStatus::Pending; 5]);
    }
}
