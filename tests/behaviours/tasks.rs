//! The repository of a task, and its installation.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::scene::EvaluationScene;

/// A repository of 60 commits, each with its number in `n`; returns their hashes.
fn repository(path: &Path) -> Vec<String> {
    std::fs::create_dir_all(path).unwrap();
    let script = "git init -q -b main; for i in $(seq 60); do echo $i >n; git add n; \
                  git -c user.name=a -c user.email=a@b commit -qm $i; done; git rev-list --reverse HEAD";
    let output = Command::new("sh").args(["-ec", script]).current_dir(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn task(scene: &EvaluationScene, description: &str, test: &str) -> String {
    scene.serve(&[
        ("workspace.yaml", description),
        ("prompt.md", ""),
        ("tests/fail_to_pass_1.sh", test),
    ])
}

#[test]
fn a_path_of_the_tasks_leads_to_its_programs_and_not_to_the_shell() {
    let scene = EvaluationScene::new();
    let description = "files: files\nenv: {PATH: /nowhere}\n\
                       install: ['echo \"$PATH\" >/deps/installed_with']\n";
    let test = "echo \"$PATH\"\nread -r path </deps/installed_with\necho \"$path\"\n";
    let url = scene.serve(&[
        ("workspace.yaml", description),
        ("prompt.md", ""),
        ("files/a", ""),
        ("tests/fail_to_pass_1.sh", test),
    ]);
    let result = scene.agent(&url, ":");
    assert_eq!(result["verdict"], "resolved", "{result:#}");
    let path = "/deps/venv/bin:/deps/bin:/deps/npm/bin:/nowhere\n";
    assert_eq!(result["test_results"][0]["output"], path.repeat(2), "{result:#}");
}

#[test]
fn b25_an_old_commit_is_found_and_an_unknown_one_is_named() {
    let scene = EvaluationScene::new();
    let path = scene.path("repository");
    let commits = repository(&path);
    let place = path.display();
    let test = "test \"$(cat n)\" = 1 && test \"$(git log --oneline | wc -l)\" = 1\n";
    let url = task(&scene, &format!("repo: {place}\nbase_commit: {}\n", commits[0]), test);
    let result = scene.agent(&url, ":");
    assert_eq!(result["verdict"], "resolved", "{result:#}");
    assert_eq!(result["task"]["base_commit"], commits[0].as_str());
    let unknown = "0123456789abcdef0123456789abcdef01234567";
    let url = task(&scene, &format!("repo: {place}\nbase_commit: {unknown}\n"), test);
    let result = scene.agent(&url, ":");
    assert_eq!(result["failure"]["code"], "repo.commit_not_found", "{result:#}");
    assert_eq!((&result["step"], &result["status"]), (&json!("cloning_repo"), &json!("failed")));
}

#[test]
fn b26_no_word_of_a_task_is_an_option_or_a_transport() {
    let scene = EvaluationScene::new();
    let marker = scene.path("executed");
    for (description, code) in [
        ("repo: --upload-pack=touch MARKER\nbase_commit: main\n".to_owned(), "repo.url_denied"),
        ("repo: 'ext::sh -c touch% MARKER'\nbase_commit: main\n".to_owned(), "repo.url_denied"),
        ("repo: file:///etc\nbase_commit: main\n".to_owned(), "repo.url_denied"),
        ("repo: /etc\nbase_commit: main\n".to_owned(), "repo.url_denied"),
        ("repo: https://a:b@example.com/r\nbase_commit: main\n".to_owned(), "repo.url_denied"),
        ("repo: https://example.com/r\nbase_commit: -f\n".to_owned(), "task.invalid"),
    ] {
        let description = description.replace("MARKER", marker.to_str().unwrap());
        let result = scene.agent(&task(&scene, &description, "exit 0\n"), ":");
        assert_eq!(result["failure"]["code"], code, "{description}: {result:#}");
        assert_eq!(result["status"], "failed");
    }
    assert!(!marker.exists());
}

#[test]
fn b27_a_failed_install_ends_the_evaluation_or_is_a_warning() {
    let scene = EvaluationScene::new();
    let files = |description| {
        [
            ("workspace.yaml", description),
            ("prompt.md", ""),
            ("files/a", ""),
            ("tests/fail_to_pass_1.sh", "test -e done\n"),
        ]
    };
    let install = "files: files\ninstall: ['echo the reason >&2; exit 7']\n";
    let result = scene.agent(&scene.serve(&files(install)), "touch done");
    let failure = &result["failure"];
    assert_eq!(failure["code"], "install.failed", "{result:#}");
    assert_eq!(
        (&failure["details"]["exit_code"], &result["step"]),
        (&json!(7), &json!("installing_deps"))
    );
    assert!(failure["details"]["tail"].as_str().unwrap().contains("the reason"), "{failure}");
    assert!(failure["details"]["command"].as_str().unwrap().contains("exit 7"), "{failure}");
    let goes_on = format!("{install}on_install_failure: continue\n");
    let result = scene.agent(&scene.serve(&files(&goes_on)), "touch done");
    assert_eq!(result["verdict"], "resolved", "{result:#}");
}
