//! Files that tests get as the base has them, and what an agent leaves elsewhere.

use serde_json::{Value, json};

use crate::scene::Scene;

/// The result of an agent in bash on a task with one test, which passes if the cheat had no effect.
fn cheat(agent: &str, test: &str) -> Value {
    let scene = Scene::new(&[
        ("workspace.yaml", "files: files\ninstall: ['echo built > made.so']\n"),
        ("files/.gitignore", "*.so\n*.log\n"),
        ("files/mod.py", "VALUE = 41\n"),
        (
            "files/pyproject.toml",
            "[project]\nname = \"p\"\n\n[tool.pytest.ini_options]\na = \"base\"\n",
        ),
        ("tests/pass_to_pass_1.sh", &format!("set -e\n{test}")),
        ("tests/expected.txt", "of the task\n"),
        ("tests/data/deep/value", "of the task\n"),
    ]);
    scene.agent(&format!("set -e\n{agent}"))
}

fn has_no_effect(agent: &str, test: &str) -> Value {
    let result = cheat(agent, test);
    assert_eq!(result["agent"]["exit_code"], 0, "{agent}: {result:#}");
    assert_eq!(result["verdict"], "resolved", "{agent}: {result:#}");
    result
}

#[test]
fn files_that_decide_how_tests_run_are_restored_and_named() {
    let result = has_no_effect(
        "for name in conftest.py sitecustomize.py x.pth pytest.ini; do echo evil > $name; done\n\
         mkdir -p sub __pycache__; echo evil > sub/conftest.py\n\
         echo evil > __pycache__/mod.cpython-313.pyc; echo evil > made.so; echo more > real.py",
        "for name in conftest.py sitecustomize.py x.pth pytest.ini sub __pycache__; do\n\
         test ! -e $name || exit 1; done\ntest \"$(cat made.so)\" = built && test -f real.py\n",
    );
    assert_eq!(
        result["patch"]["withheld"],
        json!([
            "__pycache__/mod.cpython-313.pyc",
            "conftest.py",
            "made.so",
            "pytest.ini",
            "sitecustomize.py",
            "sub/conftest.py",
            "x.pth"
        ])
    );
}

#[test]
fn settings_of_test_runners_are_restored_and_the_rest_of_the_file_is_the_agents() {
    let result = has_no_effect(
        "printf '[project]\\nname = \"agent\"\\n[tool.pytest.ini_options]\\na = \"evil\"\\n' > pyproject.toml",
        "grep -q base pyproject.toml && grep -q agent pyproject.toml\nif grep -q evil pyproject.toml; then exit 1; fi\n",
    );
    assert_eq!(result["patch"]["withheld"], json!(["pyproject.toml"]));
}

#[test]
fn the_agents_git_attributes_filters_and_hooks_never_act() {
    let result = has_no_effect(
        "printf '* text eol=lf filter=evil\\n' > .gitattributes\n\
         git config filter.evil.clean 'echo evil'; git config filter.evil.smudge 'echo evil'\n\
         printf '#!/bin/sh\\necho evil > hooked\\n' > .git/hooks-x 2>/dev/null || true\n\
         mkdir -p .git/hooks .git/info; printf '#!/bin/sh\\ntouch /workspace/hooked\\n' > .git/hooks/post-index-change\n\
         chmod +x .git/hooks/post-index-change; git config core.fsmonitor 'touch hooked'\n\
         echo '*' > .git/info/exclude; printf '*\\n' > .gitignore\n\
         printf 'a\\r\\nb' > crlf.txt; mkdir nested; cd nested; git init -q .; echo in > nested.txt",
        "test ! -e hooked && cmp crlf.txt <(printf 'a\\r\\nb') && test -f nested/nested.txt\n\
         test ! -e nested/.git && test -z \"$(git config filter.evil.clean)\"\n",
    );
    let patch = result["agent_patch"].as_str().unwrap();
    assert!(patch.contains("+a\r\n") && patch.contains("nested/nested.txt"), "{patch}");
    assert!(!patch.contains("/.git/"), "{patch}");
}

#[test]
fn a_process_that_outlives_the_agent_is_dead_before_its_files_are_read() {
    has_no_effect(
        "setsid sh -c 'while :; do echo x >> /workspace/alive; done' >/dev/null 2>&1 </dev/null &\n\
         until test -s alive; do :; done",
        "count=$(ls /proc | grep -c '^[0-9]')\ntest $count -lt 8\n",
    );
}

#[test]
fn tests_replace_whatever_stands_at_their_places_and_above() {
    has_no_effect(
        "ln -s /etc/passwd expected.txt; ln -s /tmp data",
        "test \"$(cat expected.txt data/deep/value)\" = \"$(printf 'of the task\\nof the task')\"\n\
         test ! -L data && test ! -L expected.txt\n",
    );
    has_no_effect(
        "mkdir expected.txt; touch expected.txt/x; echo file > data",
        "test \"$(cat expected.txt data/deep/value)\" = \"$(printf 'of the task\\nof the task')\"\n",
    );
}

#[test]
fn an_agent_sees_no_test_no_solution_and_no_secret() {
    let result = has_no_effect(
        "test ! -e /tests; test ! -e expected.txt; test \"$(ls /task /agent | tr '\\n' ' ')\" = '/agent: agent.sh  /task: prompt.md '\n\
         test \"$(cat $TASK_PROMPT)\" = 'Mend it.'; test \"$REPO_DIR\" = /workspace\n\
         if touch /agent/x /task/x /agent/agent.sh 2>/dev/null; then exit 1; fi; env",
        "env; test -z \"$TASK_PROMPT$LD_PRELOAD\" && test \"$TESTS_DIR\" = /tests\n\
         if touch /tests/x 2>/dev/null; then exit 1; fi\n",
    );
    let env = result["agent_output"].as_str().unwrap();
    assert!(!env.contains("of-the-service") && env.contains("HOME=/tmp/home\n"), "{env}");
    assert!(!result["test_output"].as_str().unwrap().contains("of-the-service"), "{result:#}");
}

#[test]
fn what_an_agent_leaves_outside_of_the_repository_or_ignored_is_lost() {
    let result = has_no_effect(
        "echo x > a.log; echo evil > /tmp/home/.bashrc; echo x > /tmp/left; mkdir -p /deps/bin\n\
         printf '#!/bin/sh\\nexit 0\\n' > /deps/bin/test; chmod +x /deps/bin/test; mkfifo fifo",
        "test ! -e a.log && test ! -e /tmp/left && test ! -e /tmp/home/.bashrc && test ! -e fifo\n\
         test ! -e /deps/bin/test\n",
    );
    assert_eq!(result["patch"]["omitted"], json!([{"path": "fifo", "reason": "fifo"}]));
    assert_eq!(result["agent_patch"], "");
}
