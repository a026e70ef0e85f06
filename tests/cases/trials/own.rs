//! Trials with parts of the caller's own, by the library. `examples/own` has one of each kind that works.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cofferdam::cases::{
    CancelToken, CellDescription, CellEntry, CellResult, CellStatus, ExecCode, ExecError,
    ExecRequest, ExecResult, Executor, GradeError, GradeInputs, Grader, GraderScore, Harness,
    HarnessCall, HarnessEnd, HarnessError, LocalCell, LocalSettings, OwnCell, OwnParts,
    ProvisionError, ProvisionRequest, ProvisionedEnvironment, Provisioner, TrialBench,
    TrialBenchError,
};

use super::scene::{HIDDEN_TEST, Scene};
use crate::conformance::doors::binary;

const MINE: &str = "harnesses: {mine: {kind: command, argv: [sh, -c, \"sed -i 's/a - b/a + b/' add.py; chmod 755 add.py; ln -s add.py link; echo 'raise SystemExit' > sitecustomize.py\"]}}
matrix: {harnesses: [nop, oracle, mine], models: [m]}
";

/// An executor in directories of this host that is not one of ours: it counts.
#[derive(Debug)]
struct Counted(LocalCell, Arc<AtomicUsize>);

impl Executor for Counted {
    fn start(&self) -> Result<(), ExecError> {
        self.0.start()
    }

    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.run(request)
    }

    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        self.0.put(path, content, mode)
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> {
        self.0.get(path)
    }

    fn remove(&self, path: &str) -> Result<(), ExecError> {
        self.0.remove(path)
    }

    fn list(&self, path: &str) -> Result<Vec<CellEntry>, ExecError> {
        self.0.list(path)
    }

    fn stop(&self) {
        self.0.stop();
    }

    fn describe(&self) -> Result<CellDescription, ExecError> {
        self.0.describe()
    }
}

/// Fails whatever it is asked.
#[derive(Debug)]
struct Refuses;

impl Provisioner for Refuses {
    fn provision(
        &self,
        _: &dyn Executor,
        _: &ProvisionRequest<'_>,
    ) -> Result<ProvisionedEnvironment, ProvisionError> {
        Err(ProvisionError::Network { reason: "refused".to_owned() })
    }
}

impl Harness for Refuses {
    fn work(&self, _: &dyn Executor, _: &HarnessCall<'_>) -> Result<HarnessEnd, HarnessError> {
        Err(HarnessError::failed("refused"))
    }
}

impl Grader for Refuses {
    fn grade(&self, _: &dyn Executor, _: &GradeInputs) -> Result<Vec<GraderScore>, GradeError> {
        Err(GradeError::Exec(ExecError::new(ExecCode::BackendFailed, "refused")))
    }
}

fn bench(scene: &Scene, own: OwnParts) -> TrialBench {
    TrialBench::builder(scene.case(), scene.store()).own(own).helper(binary()).build().unwrap()
}

fn run(bench: &TrialBench, harness: &str) -> CellResult {
    bench.run(harness, "m", &CancelToken::new().unwrap()).unwrap()
}

#[test]
fn an_executor_in_directories_of_its_own_takes_part_in_every_step() {
    let blocks = format!(
        "environment: {{kind: command, commands: ['echo e > $(dirname $PWD)/env/e']}}
setup: {{run: [touch set-up]}}
{MINE}{HIDDEN_TEST}- {{type: command, cmd: 'test -e set-up && test ! -e sitecustomize.py && grep -q e ../env/e'}}
- {{type: command, weight: 0, cmd: 'test -x add.py && test -L link'}}
"
    );
    let Some(scene) = Scene::new(&blocks) else { return };
    let commands = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&commands);
    let own = OwnParts {
        executor: Some(Box::new(move |request| {
            let settings = LocalSettings {
                cell: request.settings.clone(),
                base: request.scratch.to_owned(),
                helper: binary(),
            };
            let cell = LocalCell::new(settings, request.cancel.clone());
            Ok(OwnCell::Directories(Box::new(Counted(cell, Arc::clone(&count)))))
        })),
        ..OwnParts::default()
    };
    let bench = bench(&scene, own);
    for (harness, score, commands_run) in [("nop", 0.75, 5), ("oracle", 1.0, 6), ("mine", 1.0, 6)] {
        let before = commands.load(Ordering::Relaxed);
        let result = run(&bench, harness);
        assert_eq!(result.end.overall_score, Some(score), "{result:?}");
        assert_eq!(result.end.scores[2].passed, Some(harness == "mine"), "{result:?}");
        assert_eq!(commands.load(Ordering::Relaxed) - before, commands_run, "{harness}");
        assert!(!result.end.provision.unwrap().shared);
    }
    drop(bench);
    scene.assert_nothing_left();
}

#[test]
fn a_part_that_fails_fails_its_step_alone() {
    let environment = "environment: {kind: command, commands: ['true']}\n";
    let Some(scene) = Scene::new(&format!("{environment}{MINE}{HIDDEN_TEST}")) else { return };
    let unavailable = || ExecError::new(ExecCode::BackendUnavailable, "refused");
    for (own, code) in [
        (
            OwnParts { provisioner: Some(Box::new(Refuses)), ..OwnParts::default() },
            "provision.failed",
        ),
        (OwnParts { harness: Some(Arc::new(Refuses)), ..OwnParts::default() }, "harness.failed"),
        (
            OwnParts { graders: Some(vec![Box::new(Refuses)]), ..OwnParts::default() },
            "grade.failed",
        ),
        (
            OwnParts {
                executor: Some(Box::new(move |_| Err(unavailable()))),
                ..OwnParts::default()
            },
            "backend.unavailable",
        ),
    ] {
        let result = run(&bench(&scene, own), "nop");
        let error = result.end.error.as_ref().unwrap();
        assert_eq!((result.end.status, error.code.as_str()), (CellStatus::Failed, code));
        assert!(error.message.contains("refused"), "{error:?}");
        scene.assert_nothing_left();
    }
}

#[test]
fn directories_that_are_not_the_cells_own_are_never_touched() {
    let Some(scene) = Scene::new(&format!("{MINE}{HIDDEN_TEST}")) else { return };
    // Its sandbox is `/workspace`, which is no directory of this host.
    let own = OwnParts {
        executor: Some(Box::new(|request| Ok(OwnCell::Directories(Box::new(request.sandboxed()))))),
        ..OwnParts::default()
    };
    let error = run(&bench(&scene, own), "nop").end.error.unwrap();
    assert_eq!(error.code, "container.failed", "{error:?}");
    // These are another's.
    let theirs = tempfile::tempdir().unwrap();
    let base = theirs.path().to_owned();
    let own = OwnParts {
        executor: Some(Box::new(move |request| {
            let (base, helper) = (base.clone(), binary());
            let settings = LocalSettings { cell: request.settings.clone(), base, helper };
            let cell = LocalCell::new(settings, request.cancel.clone());
            Ok(OwnCell::Directories(Box::new(cell)))
        })),
        ..OwnParts::default()
    };
    let error = run(&bench(&scene, own), "nop").end.error.unwrap();
    assert_eq!(error.code, "container.failed", "{error:?}");
    assert!(error.message.contains("below the bench's own"), "{error:?}");
}

#[test]
fn a_bench_without_parts_of_its_own_does_what_the_command_line_does() {
    let Some(scene) = Scene::new(&format!("{MINE}{HIDDEN_TEST}")) else { return };
    let bench = bench(&scene, OwnParts::default());
    for (harness, score) in [("nop", 0.5), ("oracle", 1.0), ("mine", 1.0)] {
        let result = run(&bench, harness);
        assert_eq!(result.end.overall_score, Some(score), "{result:?}");
    }
    assert_eq!(run(&bench, "nobody").end.error.unwrap().code, "harness.failed");
    let raised = CancelToken::new().unwrap();
    raised.cancel();
    assert_eq!(bench.run("nop", "m", &raised).unwrap().end.status, CellStatus::Pending);
    let end = scene.command("report", &[]).output().unwrap();
    assert_eq!(end.status.code(), Some(0), "{}", String::from_utf8_lossy(&end.stderr));
}

#[test]
fn a_case_with_errors_has_no_bench() {
    let Some(scene) = Scene::new("graders: [{type: tests}]\n") else { return };
    let error = TrialBench::builder(scene.case(), scene.store()).build().unwrap_err();
    let TrialBenchError::Case(faults) = &error else { panic!("{error}") };
    let paths: Vec<_> = faults.errors.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["matrix", "graders[0].cmd"], "{error}");
    assert!(error.to_string().contains("matrix: "), "{error}");
    assert!(!Path::new(&scene.store()).exists());
}
