//! What lasts beyond a Cell in a container: caches, and the container itself with `--keep`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::doors::{Scene, alive_with, binary};
use super::engine::{IMAGE, TestEngine};

/// Stands in the command line of a process that must not survive.
const MARKER: &str = "8643.2468013";
/// How long the end of all that a killed supervisor has may take.
const WAIT: Duration = Duration::from_secs(120);

/// A run of a Case in containers.
pub struct CaseRun<'s> {
    scene: &'s Scene,
    engine: &'s TestEngine,
}

/// What a run has come to.
pub struct Ended {
    pub answer: Value,
    pub stderr: String,
}

impl<'s> CaseRun<'s> {
    pub fn new(scene: &'s Scene) -> Option<Self> {
        Some(Self { scene, engine: scene.engine()? })
    }

    /// Runs the Case with the agent `mine`, so many times, to its end.
    pub fn run(&self, blocks: &str, trials: u32, options: &[&str]) -> Ended {
        Ended::of(&self.command(blocks, trials, options).output().unwrap())
    }

    /// The same, not started.
    pub fn command(&self, blocks: &str, trials: u32, options: &[&str]) -> Command {
        let directory = self.scene.case("");
        let text = format!(
            "id: a\ntask: {{prompt: p}}\nsource: {{path: src}}\n\
             matrix: {{harnesses: [mine], models: [m], trials: {trials}}}\n{blocks}"
        );
        fs::write(directory.join("case.yaml"), text).unwrap();
        let mut command = Command::new(binary());
        command.args(["case", "run"]).arg(&directory).arg("--store-dir").arg(self.scene.store());
        command.args(options).env("PATH", self.engine.search_path());
        command
    }

    /// Fails unless nothing of Cells is left.
    #[track_caller]
    fn assert_nothing_left(&self) {
        assert_eq!(self.engine.left(), "");
        let sessions = fs::read_dir(self.scene.store().join("case-sessions")).unwrap();
        let left: Vec<_> = sessions.flatten().map(|one| one.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

impl Ended {
    pub fn of(output: &Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let answer = serde_json::from_slice(&output.stdout);
        Self { answer: answer.unwrap_or_else(|error| panic!("{error}: {stderr}")), stderr }
    }

    pub fn passed(&self) -> u64 {
        self.answer["passed"].as_u64().unwrap()
    }

    pub fn cell(&self, trial: u32) -> PathBuf {
        let directory = PathBuf::from(self.answer["dir"].as_str().unwrap());
        directory.join(format!("cells/a__mine__m__t{trial}"))
    }

    /// The text of a file that the Cell kept.
    pub fn kept(&self, trial: u32, path: &str) -> String {
        let path = self.cell(trial).join("sandbox").join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// A Case whose provisioning runs `command`, and whose agent writes to the cache.
fn caching(command: &str) -> String {
    format!(
        "container: {{image: '{IMAGE}', harness: true, caches: [.m2], setup: ['echo s >> /home/.m2/setup']}}
environment:
  kind: command
  commands:
  - |
    {command}
harnesses:
  mine:
    kind: command
    argv: [sh, -c, 'cp ~/.m2/log agent; echo agent >> ~/.m2/log; touch ~/.m2/changed']
graders:
- {{type: command, cmd: 'cmp agent ~/.m2/log && test ! -e ~/.m2/changed && touch ~/.m2/changed'}}
- {{type: command, cmd: 'cmp agent ~/.m2/log && test ! -e ~/.m2/changed'}}
"
    )
}

/// Adds a line to the cache, and shows what it has.
const ADD: &str = "echo p >> ~/.m2/log; cp ~/.m2/log seen; cp ~/.m2/setup setup";

#[test]
fn a_cache_has_what_earlier_cells_provisioned_and_nothing_of_agents_graders_and_failures() {
    let Some(scene) = Scene::new() else { return };
    let Some(run) = CaseRun::new(&scene) else { return };
    let first = run.run(&caching(ADD), 2, &["--keep"]);
    assert_eq!(first.passed(), 2, "{}", first.stderr);
    assert_eq!([1, 2].map(|trial| first.kept(trial, "seen")), ["p\n", "p\np\n"]);
    assert_eq!([1, 2].map(|trial| first.kept(trial, "setup")), ["s\n", "s\ns\n"]);
    let failed = run.run(&caching("echo bad >> ~/.m2/log; rm ~/.m2/setup; exit 1"), 1, &[]);
    assert_eq!(failed.answer["cells"]["failed"], 1, "{}", failed.stderr);
    let last = run.run(&caching(ADD), 1, &["--keep"]);
    assert_eq!((last.passed(), last.kept(1, "seen")), (1, "p\np\np\n".to_owned()));
    // A store without it begins anew.
    fs::remove_dir_all(scene.store().join("case-cache/containers")).unwrap();
    let anew = run.run(&caching(ADD), 1, &["--keep"]);
    assert_eq!(anew.kept(1, "seen"), "p\n");
}

#[test]
fn cells_that_provision_at_once_lose_nothing_of_a_cache() {
    let Some(scene) = Scene::new() else { return };
    let Some(run) = CaseRun::new(&scene) else { return };
    let ended = run.run(&caching(&format!("sleep 0.3; {ADD}")), 3, &["--jobs", "3"]);
    assert_eq!(ended.passed(), 3, "{}", ended.stderr);
    let next = run.run(&caching(ADD), 1, &["--keep"]);
    assert_eq!(next.kept(1, "seen"), "p\n".repeat(4));
}

#[test]
fn a_provisioning_that_is_killed_leaves_its_cache_as_it_was_and_nothing_else() {
    let Some(scene) = Scene::new() else { return };
    let Some(run) = CaseRun::new(&scene) else { return };
    assert_eq!(run.run(&caching(ADD), 1, &[]).passed(), 1);
    let hanging = caching(&format!("echo bad >> ~/.m2/log; sleep {MARKER}"));
    let mut supervisor = run.command(&hanging, 1, &[]);
    let mut supervisor = supervisor.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while alive_with(&format!("sleep {MARKER}")).is_empty() {
        assert!(supervisor.try_wait().unwrap().is_none() && began.elapsed() < WAIT);
        thread::sleep(Duration::from_millis(50));
    }
    assert!(!scene.left_of_cells().is_empty());
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let began = Instant::now();
    let is_left = || !run.engine.left().is_empty() || !scene.left_of_cells().is_empty();
    while is_left() {
        assert!(began.elapsed() < WAIT, "{} {:?}", run.engine.left(), scene.left_of_cells());
        thread::sleep(Duration::from_millis(200));
    }
    let next = run.run(&caching(ADD), 1, &["--keep"]);
    assert_eq!(next.kept(1, "seen"), "p\np\n", "{}", next.stderr);
}

#[test]
fn a_link_in_a_cache_leads_to_no_file_of_the_host() {
    let Some(scene) = Scene::new() else { return };
    let Some(run) = CaseRun::new(&scene) else { return };
    let secret = scene.cells().parent().unwrap().join("secret");
    fs::write(&secret, "of the host 7391").unwrap();
    let shown = secret.display();
    let make = format!(
        "{ADD}; ln -sfn {shown} ~/.m2/file; ln -sfn {} ~/.m2/directory; mkfifo ~/.m2/fifo; \
         cp /bin/busybox ~/.m2/program; chmod 6755 ~/.m2/program",
        secret.parent().unwrap().display()
    );
    let ended = run.run(&caching(&make), 1, &[]);
    assert_eq!(ended.passed(), 1, "{}", ended.stderr);
    let look = format!(
        "{ADD}; readlink ~/.m2/file > link; cat ~/.m2/file ~/.m2/directory/secret > read 2>/dev/null; \
         stat -c %a ~/.m2/program > mode; ls ~/.m2 > names"
    );
    let next = run.run(&caching(&look), 1, &["--keep"]);
    let found = ["link", "read", "mode", "names"].map(|name| next.kept(1, name));
    let names = "directory\nfile\nlog\nprogram\nsetup\n";
    assert_eq!(found, [&format!("{shown}\n"), "", "755\n", names].map(str::to_owned));
    let store = scene.store().join("cache/containers");
    let searched = Command::new("grep").args(["-rl", "of the host 7391"]).arg(store).output();
    assert_eq!(String::from_utf8(searched.unwrap().stdout).unwrap(), "");
    fs::read_to_string(secret).unwrap();
}

#[test]
fn the_container_of_a_cell_is_kept_if_asked_for_and_nothing_else() {
    let Some(scene) = Scene::new() else { return };
    let Some(run) = CaseRun::new(&scene) else { return };
    let blocks = |command: &str| {
        format!(
            "container: {{image: '{IMAGE}', harness: true, setup: ['echo s > /set-up']}}
setup: {{run: [\"{command}\"]}}
harnesses: {{mine: {{kind: command, argv: [sh, -c, 'echo a > /home/agent']}}}}
graders:
- {{type: command, cmd: 'test ! -e /home/agent && echo g > /home/grader'}}
- {{type: command, cmd: 'test ! -e /home/grader'}}
"
        )
    };
    let ended = run.run(&blocks("echo r > /home/run"), 1, &[]);
    assert_eq!((ended.passed(), ended.cell(1).join("container").exists()), (1, false));
    run.assert_nothing_left();
    for (command, passed, wanted) in
        [("echo r > /home/run", 1, "agent run"), ("echo r > /home/run; exit 1", 0, "run")]
    {
        let ended = run.run(&blocks(command), 1, &["--keep"]);
        assert_eq!(ended.passed(), passed, "{}", ended.stderr);
        let name = fs::read_to_string(ended.cell(1).join("container")).unwrap();
        let inspected = run.engine.call(&["inspect", "--format", "{{.State.Running}}", &name]);
        assert_eq!(String::from_utf8(inspected.stdout).unwrap(), "false\n");
        let packed = scene.cells().join("packed.tar");
        let to = ["export", "--output", packed.to_str().unwrap(), &name];
        assert!(run.engine.call(&to).status.success());
        let listed = Command::new("tar").arg("-tf").arg(&packed).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.lines().any(|path| path == "set-up"), "{listed}");
        let mut at_home: Vec<_> =
            listed.lines().filter_map(|path| path.strip_prefix("home/")).collect();
        at_home.retain(|name| !name.is_empty());
        at_home.sort_unstable();
        assert_eq!(at_home.join(" "), wanted);
        // What the documents say.
        for words in [
            &["rm", &name][..],
            &["rmi", "--force", &format!("localhost/{}:committed", name.trim_end_matches("-kept"))],
            &["rmi", "--force", &format!("localhost/{}:setup", name.trim_end_matches("-kept"))],
        ] {
            let done = run.engine.call(words);
            let complaint = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success() || passed == 0, "{words:?}: {complaint}");
        }
        run.assert_nothing_left();
    }
}
