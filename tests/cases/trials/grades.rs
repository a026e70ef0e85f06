//! What a trial does with an agent's work.

use std::fs;

use serde_json::json;

use super::scene::{HIDDEN_TEST, RunEnd, Scene, lines};

const EXECUTORS: [&str; 2] = ["sandboxed", "local"];

fn by(executor: &str, scene: &Scene) -> RunEnd {
    let end = scene.run(&["--executor", executor, "--jobs", "2"]);
    assert_eq!(end.cells()[1..], [0, 0, 0], "{executor}: {}", end.stderr);
    end
}

#[test]
fn nop_fails_and_the_oracle_and_an_agent_that_mends_it_pass() {
    let mend = "sed -i s/-/+/2g add.py; sed -i 's/a - b/a + b/' add.py; echo mended";
    let blocks = format!(
        "harnesses: {{mine: {{kind: command, argv: [sh, -c, {mend:?}]}}}}
matrix: {{harnesses: [nop, oracle, mine], models: [m], trials: 2}}\n{HIDDEN_TEST}"
    );
    let Some(scene) = Scene::new(&blocks) else { return };
    for executor in EXECUTORS {
        let end = by(executor, &scene);
        assert_eq!((end.code, &end.answer["passed"]), (Some(0), &json!(4)), "{}", end.stderr);
        for trial in [1, 2] {
            for (harness, score) in [("nop", 0.5), ("oracle", 1.0), ("mine", 1.0)] {
                let result = scene.result(&end, harness, trial);
                assert_eq!(result["status"], "done", "{result}");
                assert_eq!(result["overall_score"], json!(score), "{executor} {result}");
                assert_eq!(result["executor"]["kind"], executor);
            }
        }
        let cell = scene.cell(&end, "mine", 1);
        let patch = fs::read_to_string(cell.join("agent.patch")).unwrap();
        assert!(patch.contains("+    return a + b\n"), "{patch}");
        assert_eq!(fs::read_to_string(cell.join("output.txt")).unwrap(), "mended\n");
        let ran = lines(&cell.join("commands.jsonl"));
        let steps: Vec<_> = ran.iter().map(|one| one["step"].as_str().unwrap()).collect();
        assert_eq!(steps, ["agent", "grade"]);
        scene.assert_nothing_left();
    }
}

#[test]
fn an_agent_sees_neither_hidden_files_nor_the_case_nor_our_variables() {
    let look = "env; ls -a . \"$CASE_DIR\" /case; cat /case/test_hidden.py; find / -xdev -name 'test_hidden*' 2>/dev/null; grep -rl test_three / --include='*.py' --include='*.yaml' -s | head";
    let blocks = format!(
        "harnesses: {{mine: {{kind: command, argv: [sh, -c, {look:?}]}}}}
setup: {{run: ['test -n \"$CASE_DIR\" && ls $CASE_DIR > listed']}}
matrix: {{harnesses: [mine], models: [m]}}\n{HIDDEN_TEST}"
    );
    let Some(scene) = Scene::new(&blocks) else { return };
    let end = scene.run(&[]);
    let output = fs::read_to_string(scene.cell(&end, "mine", 1).join("output.txt")).unwrap();
    for hidden in ["test_hidden", "test_three", "CASE_DIR=", "HOST_SECRET"] {
        assert!(
            !output.contains(&format!("\n{hidden}")) && !output.contains("of the host"),
            "{output}"
        );
    }
    assert!(output.contains("listed"), "{output}");
    assert!(!output.contains("def test_three"), "{output}");
}

#[test]
fn files_that_decide_how_tests_run_are_protected_and_hidden_ones_replace_an_agents() {
    let cheat = "printf 'raise SystemExit(0)' > sitecustomize.py; echo 'x = 1' > test_hidden.py; \
                 mkdir -p unittest; touch unittest/__init__.py; echo made > made";
    let blocks = format!(
        "harnesses: {{mine: {{kind: command, argv: [sh, -c, {cheat:?}]}}}}
matrix: {{harnesses: [mine], models: [m]}}\n{HIDDEN_TEST}"
    );
    let Some(scene) = Scene::new(&blocks) else { return };
    for executor in EXECUTORS {
        let end = by(executor, &scene);
        assert_eq!(end.code, Some(1), "{}", end.stderr);
        let result = scene.result(&end, "mine", 1);
        assert_eq!(result["overall_score"], json!(0.5), "{result}");
        assert_eq!(
            result["agent"]["protected"],
            json!(["sitecustomize.py", "test_hidden.py", "unittest/__init__.py"])
        );
    }
}

#[test]
fn graders_do_not_see_what_another_one_did() {
    let blocks = "matrix: {harnesses: [nop], models: [m]}
graders:
- {type: command, cmd: 'test ! -e left && touch left && rm kept'}
- {type: command, cmd: 'test ! -e left && test -e kept && touch left'}
";
    let Some(scene) = Scene::new(blocks) else { return };
    for executor in EXECUTORS {
        let end = by(executor, &scene);
        assert_eq!(scene.result(&end, "nop", 1)["overall_score"], json!(1.0), "{executor}");
    }
}

#[test]
fn trials_share_one_provisioning_and_each_has_its_own_copy() {
    let mine =
        "cat made >> seen; echo $MADE >> seen; cat /env/e >> seen; echo changed > /env/e; cat seen";
    let blocks = format!(
        "environment: {{kind: command, commands: ['echo one > made; echo two > /env/e'], env: {{MADE: 'yes'}}}}
harnesses: {{mine: {{kind: command, argv: [sh, -c, {mine:?}]}}}}
matrix: {{harnesses: [mine], models: [m], trials: 5}}
graders: [{{type: command, cmd: 'test \"$(cat /env/e)\" = two && test $MADE = yes'}}]\n"
    );
    let Some(scene) = Scene::new(&blocks) else { return };
    let end = scene.run(&["--jobs", "3"]);
    assert_eq!(end.code, Some(0), "{}", end.stderr);
    let mut provisioned = 0;
    for trial in 1..=5 {
        let cell = scene.cell(&end, "mine", trial);
        let output = fs::read_to_string(cell.join("output.txt")).unwrap();
        assert_eq!(output, "one\nyes\ntwo\n");
        let ran = lines(&cell.join("commands.jsonl"));
        provisioned += ran.iter().filter(|one| one["step"] == "provision").count();
    }
    assert_eq!(provisioned, 1);
    let shared =
        (1..=5).filter(|trial| scene.result(&end, "mine", *trial)["provision"]["shared"] == true);
    assert_eq!(shared.count(), 4);
    scene.assert_nothing_left();
}
