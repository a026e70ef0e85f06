//! What a trial needs of a sandboxed Cell besides its commands: shared files, a checkpoint, the agent's difference,
//! fresh Cells for graders.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam::cases::{
    CellBase, CellSettings, DifferenceRules, ExecCode, ExecRequest, Executor, SandboxedCell,
    StepAccess, TrialCell,
};
use cofferdam::executor::{Executor as _, RunInput, SandboxExecutor, WorkspaceInput};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{RunSpec, Watch};
use cofferdam_sandbox::engine::SandboxHost;
use cofferdam_test_support::host;
use cofferdam_test_support::host::config;
use tempfile::TempDir;

struct Trial {
    executor: Arc<SandboxExecutor>,
    place: TempDir,
}

impl Trial {
    /// A source with these files. `None` where sandboxes are impossible.
    fn new(files: &[(&str, &str)]) -> Option<Self> {
        let executor = host()?.backend();
        let place = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = place.path().join("src").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        Some(Self { executor, place })
    }

    fn settings(&self) -> CellSettings {
        CellSettings { source: Some(self.place.path().join("src")), ..CellSettings::default() }
    }

    fn cell(&self, settings: CellSettings) -> SandboxedCell {
        let cell = SandboxedCell::new(self.executor.clone(), settings, CancelToken::new().unwrap());
        cell.start().unwrap();
        cell
    }

    fn over(&self, base: &CellBase) -> SandboxedCell {
        let cancel = CancelToken::new().unwrap();
        let settings = CellSettings::default();
        SandboxedCell::over(base.clone(), self.executor.clone(), settings, cancel)
    }
}

/// Runs `command` with a shell; what it printed.
fn sh(cell: &dyn Executor, command: &str) -> String {
    let result = cell.run(&ExecRequest::new(["sh", "-c", command])).unwrap();
    assert_eq!(result.exit_code, Some(0), "{command}: {}", result.stderr.text);
    result.stdout.text
}

fn rules() -> DifferenceRules {
    DifferenceRules { patch_bytes_max: 1 << 20, ..DifferenceRules::default() }
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

#[test]
fn graders_get_what_the_agent_got_and_its_difference_but_not_what_is_protected() {
    let files = [
        ("a.txt", "a\n"),
        ("b.txt", "b\n"),
        ("conftest.py", "# theirs\n"),
        (".gitignore", "*.log\n"),
        ("kept/conftest.py", "# theirs\n"),
    ];
    let Some(trial) = Trial::new(&files) else { return };
    let cell = trial.cell(trial.settings());
    sh(&cell, "echo set up > set-up; echo e > /env/e; echo t > /tmp/t");
    cell.checkpoint().unwrap();
    sh(
        &cell,
        "echo 2 >> a.txt; rm b.txt; echo forged > conftest.py; echo mine > kept/conftest.py; \
         echo x > x.log; echo new > new; echo r > report.xml; echo bad >> /env/e; echo bad > /tmp/bad; \
         echo p > secret.cfg; (sleep 9 & ) ; cat set-up",
    );
    let rules = DifferenceRules {
        protect: vec!["*.cfg".into()],
        unprotect: vec!["kept/**".into()],
        always: vec!["report*.xml".into()],
        ..rules()
    };
    let difference = cell.difference(&rules, soon()).unwrap();
    assert_eq!(difference.protected, ["conftest.py", "report.xml", "secret.cfg"]);
    assert_eq!(difference.patch.files, 7);
    let patch = String::from_utf8(difference.patch.bytes).unwrap();
    assert!(patch.contains("+2\n") && patch.contains("deleted file mode 100644"), "{patch}");
    assert!(!patch.contains("x.log") && !patch.contains("set-up"), "{patch}");
    let stopped = cell.run(&ExecRequest::new(["true"])).unwrap_err();
    assert_eq!(stopped.code, ExecCode::Stopped);
    for _ in 0..2 {
        let grader = cell.grader_cell().unwrap();
        let found = sh(&*grader, "ls -A; cat a.txt conftest.py kept/conftest.py /env/e; ls /tmp");
        assert_eq!(
            found,
            ".gitignore\na.txt\nconftest.py\nkept\nnew\nset-up\na\n2\n# theirs\nmine\ne\nhome\nt\n"
        );
        sh(&*grader, "rm -r a.txt kept; echo another > new");
    }
}

#[test]
fn cells_over_one_base_do_not_see_what_the_others_write() {
    let Some(trial) = Trial::new(&[("a", "a\n")]) else { return };
    let maker = trial.cell(trial.settings());
    sh(&maker, "echo provisioned > /env/p");
    let base = maker.freeze().unwrap();
    let cells: Vec<_> = (0..3).map(|_| trial.over(&base)).collect();
    for (index, cell) in cells.iter().enumerate() {
        cell.start().unwrap();
        assert_eq!(
            sh(cell, &format!("cat a /env/p; echo {index} > a; echo {index} > /env/p")),
            "a\nprovisioned\n"
        );
    }
    for (index, cell) in cells.iter().enumerate() {
        assert_eq!(sh(cell, "cat a /env/p"), format!("{index}\n{index}\n"));
    }
}

#[test]
fn the_case_directory_is_seen_read_only_by_the_steps_that_ask_for_it() {
    let Some(trial) = Trial::new(&[("a", "a\n")]) else { return };
    let shown = trial.place.path().join("src");
    let cell = trial.cell(CellSettings { case_dir: Some(shown), ..trial.settings() });
    let access = StepAccess { shows_case: true, ..StepAccess::default() };
    let command = "cat \"$CASE_DIR/a\"; touch \"$CASE_DIR/b\" 2>/dev/null || echo read-only";
    let asked = ExecRequest { access, ..ExecRequest::new(["sh", "-c", command]) };
    assert_eq!(cell.run(&asked).unwrap().stdout.text, "a\nread-only\n");
    assert_eq!(
        sh(&cell, "echo \"[$CASE_DIR]\"; ls -d /case 2>/dev/null || echo none"),
        "[]\nnone\n"
    );
}

#[test]
fn a_difference_needs_a_checkpoint_and_a_grader_a_difference() {
    let Some(trial) = Trial::new(&[("a", "a\n")]) else { return };
    let cell = trial.cell(trial.settings());
    assert!(cell.grader_cell().is_err());
    assert!(cell.difference(&rules(), soon()).is_err());
    let cell = trial.cell(trial.settings());
    cell.checkpoint().unwrap();
    sh(&cell, "head -c 3000000 /dev/urandom > big");
    let error = cell.difference(&rules(), soon()).unwrap_err();
    assert!(error.to_string().contains("is longer than 1048576 bytes"), "{error}");
    assert!(cell.grader_cell().is_err());
}

#[test]
fn a_cell_over_many_files_begins_as_fast_as_one_over_few() {
    let start = |files: usize| {
        let trial = Trial::new(&[("a", "a\n")])?;
        for index in 0..files {
            let directory = trial.place.path().join(format!("src/d{}", index / 100));
            fs::create_dir_all(&directory).unwrap();
            write_bytes(&directory.join(index.to_string()));
        }
        let base = trial.cell(trial.settings()).freeze().unwrap();
        // The fastest counts: on a busy machine most wait for a processor.
        let times = (0..25).map(|_| {
            let cell = trial.over(&base);
            let began = Instant::now();
            cell.start().unwrap();
            began.elapsed()
        });
        times.min()
    };
    let (Some(few), Some(many)) = (start(50), start(5000)) else { return };
    assert!(many < few * 3 + Duration::from_millis(30), "{many:?} and {few:?}");
}

#[test]
fn a_command_of_a_cell_costs_about_what_a_plain_run_does() {
    let Some(trial) = Trial::new(&[("a", "a\n")]) else { return };
    let cell = trial.cell(trial.settings());
    let plain = || {
        let argv = vec![c"true".to_owned()];
        let spec = RunSpec { argv, workdir: "/workspace".into(), ..RunSpec::default() };
        let workspace = WorkspaceInput::Template { dir: None, files: &[] };
        let input = RunInput { spec, workspace, retained: Retained::default() };
        let watch = Watch::of(CancelToken::new().unwrap());
        let began = Instant::now();
        trial.executor.execute(input, &watch, None).unwrap();
        began.elapsed()
    };
    let in_cell = || {
        let began = Instant::now();
        cell.run(&ExecRequest::new(["true"])).unwrap();
        began.elapsed()
    };
    // In turn, so that both meet the same load; the least of many has the least of it.
    let (plain, in_cell): (Vec<_>, Vec<_>) = (0..60).map(|_| (plain(), in_cell())).unzip();
    let (plain, in_cell) = (plain.iter().min().unwrap(), in_cell.iter().min().unwrap());
    assert!(*in_cell < *plain * 2 + Duration::from_millis(10), "{in_cell:?} and {plain:?}");
}

#[test]
fn the_next_command_of_a_cell_finds_a_prepared_sandbox_that_is_gone_when_its_files_freeze() {
    let Some(mut trial) = Trial::new(&[("a", "a\n")]) else { return };
    let mut executor = SandboxExecutor::new(SandboxHost::open(config()).unwrap());
    executor.prepare_for(4, 2).unwrap();
    trial.executor = Arc::new(executor);
    let cell = trial.cell(trial.settings());
    let metrics = || trial.executor.standby_metrics();
    sh(&cell, "echo 1 >> a");
    for round in 2..5 {
        sh(&cell, &format!("echo {round} >> a"));
        let until = Instant::now() + Duration::from_secs(60);
        while metrics().ready == 0 {
            assert!(Instant::now() < until, "no sandbox is prepared");
            std::thread::sleep(Duration::from_millis(1));
        }
        let used = metrics().used;
        assert_eq!(sh(&cell, "cat a; echo x > /env/x; pwd").lines().last(), Some("/workspace"));
        assert_eq!(metrics().used, used + 1);
    }
    cell.checkpoint().unwrap();
    assert_eq!(metrics().ready, 0);
    sh(&cell, "rm /env/x");
    let base = cell.freeze().unwrap();
    assert_eq!(metrics().ready, 0);
    let other = trial.over(&base);
    other.start().unwrap();
    assert_eq!(sh(&other, "cat a; ls /env"), "a\n1\n2\n3\n4\n");
}

fn write_bytes(path: &Path) {
    fs::write(path, [b'x'; 1000]).unwrap();
}
