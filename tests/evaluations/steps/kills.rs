//! A service that is killed at any moment while evaluations go through all steps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use cofferdam_test_server::evaluations::{EvaluationScene, PATIENCE, shell_agent};
use cofferdam_test_server::host::{Footprint, Process, descendants, loops_below, mounts};
use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

/// The number of kills, if `EVALUATION_KILLS` names no other.
const KILLS: u64 = 5;
/// So many kills meet several steps.
const MANY: u64 = 50;
/// Evaluations at once.
const AT_ONCE: usize = 3;

/// What a killed service held.
struct Held {
    footprint: Footprint,
    processes: Vec<Process>,
}

impl Held {
    fn of(pid: i32) -> Self {
        Self { footprint: Footprint::of(pid), processes: descendants(pid) }
    }

    fn is_gone(&self) -> bool {
        self.footprint.is_gone() && !self.processes.iter().any(Process::is_alive)
    }
}

/// Serves a task that clones a repository, installs, and has two tests.
fn serve_task(scene: &EvaluationScene) -> String {
    let repository = scene.path("repository");
    let script = "set -e; git init -q -b main \"$1\"; cd \"$1\"\n\
                  export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a\n\
                  for n in 1 2 3 4 5 6 7 8; do echo $n > $n; done; git add .; git commit -qm first";
    let made = Command::new("bash").args(["-c", script, "bash"]).arg(&repository).status();
    assert!(made.unwrap().success());
    let description = format!(
        "repo: {}\nbase_commit: main\ninstall: ['echo built > /deps/built']\n",
        repository.display()
    );
    scene.serve(&[
        ("workspace.yaml", &description),
        ("prompt.md", "Make the file done.\n"),
        ("tests/fail_to_pass_1.sh", "test -e done && test -e /deps/built\n"),
        ("tests/pass_to_pass_1.sh", "test -e 1\n"),
        ("tests/data.txt", "data\n"),
    ])
}

fn new_agent(url: &str) -> Value {
    let mut body = shell_agent(url, "seq 1 50 > done; sleep 0.1");
    // Nothing that was made before spares it a step.
    body["fresh"] = json!(true);
    body
}

#[test]
fn a_killed_service_keeps_what_ended_interrupts_what_ran_and_leaves_nothing() {
    let kills = std::env::var("EVALUATION_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let own = i32::try_from(std::process::id()).unwrap();
    let mut scene = EvaluationScene::with(&[]);
    let url = serve_task(&scene);
    let before = mounts(own);
    let began = Instant::now();
    let first = scene.evaluate(&new_agent(&url));
    assert_eq!(first["verdict"], "resolved", "{first:#}");
    // At once they take longer; some lives end before the last step, some after it.
    let life_max: u64 = began.elapsed().mul_f64(2.5).as_millis().try_into().unwrap();
    let mut ended = BTreeMap::from([(first["eval_id"].as_str().unwrap().to_owned(), first)]);
    let mut interrupted_in = BTreeSet::new();
    let mut interrupted = 0;
    let mut random = u64::from(SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    eprintln!("the moments come from {random}, within {life_max} ms");
    for kill in 0..kills {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let life = Duration::from_millis((random >> 33) % life_max);
        let ids: Vec<String> = (0..AT_ONCE).map(|_| scene.begin(&new_agent(&url))).collect();
        thread::sleep(life);
        for id in &ids {
            let result = scene.result(id);
            if !result["verdict"].is_null() {
                ended.insert(id.clone(), result);
            }
        }
        let held = Held::of(scene.service.pid());
        scene.service.kill();
        scene.start_again();
        wait_until("the end of what a killed service held", PATIENCE, || held.is_gone());
        for id in ids.iter().filter(|id| !ended.contains_key(*id)).collect::<Vec<_>>() {
            let result = scene.result(id);
            if result["verdict"] == "infra_error" {
                let code = &result["failure"]["code"];
                assert_eq!(code, "evaluation.interrupted", "kill {kill}: {result:#}");
                assert_eq!(
                    (&result["status"], &result["passed"]),
                    (&json!("failed"), &Value::Null)
                );
                interrupted_in.insert(result["step"].as_str().unwrap().to_owned());
                interrupted += 1;
            } else {
                // It ended after it was asked for.
                assert_eq!(result["verdict"], "resolved", "kill {kill}: {result:#}");
            }
            ended.insert(id.clone(), result);
        }
        for (id, result) in &ended {
            assert_eq!(&scene.result(id), result, "kill {kill}");
        }
        assert_eq!(scene.leftovers(), Vec::<PathBuf>::new(), "kill {kill}");
        let base = scene.path("sessions");
        wait_until("the end of loop devices", PATIENCE, || loops_below(&base).is_empty());
        wait_until("the end of mounts", PATIENCE, || mounts(own) <= before);
    }
    let count = ended.len();
    eprintln!("{kills} kills, {count} results, {interrupted} interrupted in {interrupted_in:?}");
    assert!(kills < MANY || interrupted_in.len() >= 4, "{interrupted_in:?}");
    // It still works.
    assert_eq!(scene.evaluate(&new_agent(&url))["verdict"], "resolved");
}
