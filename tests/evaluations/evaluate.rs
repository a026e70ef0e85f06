//! `cofferdam evaluate`: verdicts, exit codes, outputs.

use std::fs;
use std::process::Command;

use serde_json::json;

use crate::scene::Scene;

const ANSWER: [(&str, &str); 4] = [
    ("files/answer", "41\n"),
    ("tests/fail_to_pass_1.sh", "test \"$(cat answer)\" = 42\n"),
    ("tests/pass_to_pass_1.sh", "test -f answer\n"),
    ("solution.patch", SOLUTION),
];
const SOLUTION: &str = "\
diff --git a/answer b/answer
--- a/answer
+++ b/answer
@@ -1 +1 @@
-41
+42
";

#[test]
fn a_solution_resolves_its_task_and_nothing_does_not() {
    let scene = Scene::new(&ANSWER);
    let solution = scene.path("task/solution.patch");
    let junit = scene.path("junit.xml");
    let resolved = scene.evaluate(&[
        "--oracle",
        solution.to_str().unwrap(),
        "--junit",
        junit.to_str().unwrap(),
    ]);
    assert_eq!((resolved.code, resolved.stdout.as_str()), (0, "resolved\n"), "{resolved:?}");
    for step in ["cloning_repo", "running_agent", "running_tests", "PASS fail_to_pass_1.sh"] {
        assert!(resolved.stderr.contains(step), "{resolved:?}");
    }
    let junit = fs::read_to_string(junit).unwrap();
    assert!(junit.contains("tests=\"2\" failures=\"0\" errors=\"0\""), "{junit}");

    let unresolved = scene.evaluate(&["--nop", "--json"]);
    let result = unresolved.json();
    assert_eq!(unresolved.code, 1);
    assert_eq!(result["verdict"], "unresolved");
    assert_eq!((&result["status"], &result["passed"]), (&json!("failed"), &json!(false)));
    assert_eq!(result["step"], "done");
    assert_eq!(result["fail_to_pass"], json!({"passed": 0, "total": 1}));
    assert_eq!(result["pass_to_pass"], json!({"passed": 1, "total": 1}));
    assert_eq!((&result["agent"], &result["agent_patch"]), (&json!(null), &json!("")));
    let block = result["test_output"].as_str().unwrap();
    assert!(block.contains("=== fail_to_pass_1.sh (exit 1) ===\n"), "{block}");
}

#[test]
fn a_file_that_cannot_be_written_is_named_before_anything_runs() {
    let scene = Scene::new(&ANSWER);
    for option in ["--junit", "--patch"] {
        let refused = scene.evaluate(&["--nop", option, "/proc/none/file"]);
        assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
        assert!(refused.stderr.contains(option), "{refused:?}");
        assert!(!refused.stderr.contains("cloning_repo"), "{refused:?}");
    }
}

#[test]
fn an_agent_that_mends_a_part_is_partial() {
    let scene = Scene::new(&ANSWER);
    fs::write(scene.path("task/tests/fail_to_pass_2.sh"), "test -f other\n").unwrap();
    let agent = scene.write("agent.py", "open('answer', 'w').write('42\\n')\nprint('done')\n");
    let partial = scene.evaluate(&["--agent", &agent, "--json"]);
    let result = partial.json();
    assert_eq!((partial.code, &result["verdict"]), (1, &json!("partial")), "{partial:?}");
    assert_eq!(result["agent_output"], "done\n");
    assert_eq!(result["agent"]["exit_code"], 0);
    assert_eq!(result["patch"]["files"], 1);
}

#[test]
fn a_task_without_tests_is_no_tests_before_anything_is_made() {
    let scene = Scene::new(&[("files/a", "")]);
    let ended = scene.evaluate(&["--nop", "--json"]);
    let result = ended.json();
    assert_eq!((ended.code, &result["verdict"]), (3, &json!("no_tests")), "{ended:?}");
    assert_eq!((&result["status"], &result["passed"]), (&json!("failed"), &json!(null)));
    assert_eq!(result["failure"]["code"], "tests.none");
    let phases = result["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 1, "{phases:?}");
    assert_eq!(phases[0]["step"], "downloading_task");
}

#[test]
fn an_agent_whose_time_is_over_is_timed_out() {
    let scene = Scene::new(&ANSWER);
    let agent = scene.write("agent.sh", "echo begun\nexec sleep 600\n");
    let ended = scene.evaluate(&["--agent", &agent, "--timeout", "1s", "--json"]);
    let result = ended.json();
    assert_eq!((ended.code, &result["verdict"]), (124, &json!("timed_out")), "{ended:?}");
    assert_eq!((&result["status"], &result["passed"]), (&json!("cancelled"), &json!(false)));
    assert_eq!(result["failure"]["code"], "agent.limit_exceeded");
    assert_eq!(result["failure"]["limit"], "wall_time");
    assert_eq!(result["agent"]["limit"], "wall_time");
    assert_eq!(result["agent_output"], "begun\n");
    assert_eq!(result["step"], "running_agent");
}

#[test]
fn a_test_whose_time_is_over_fails_and_the_others_run() {
    let scene = Scene::new(&[
        ("workspace.yaml", "files: files\ntest_timeout_secs: 1\n"),
        ("files/a", ""),
        ("tests/fail_to_pass_1.sh", "echo begun\nexec sleep 600\n"),
        ("tests/fail_to_pass_2.sh", "kill -SEGV $$\n"),
        ("tests/fail_to_pass_3.sh", "exit 0\n"),
    ]);
    let result = scene.evaluate(&["--nop", "--json"]).json();
    assert_eq!(result["verdict"], "partial");
    let tests = &result["test_results"];
    assert_eq!((&tests[0]["exit_code"], &tests[0]["limit"]), (&json!(-1), &json!("wall_time")));
    assert_eq!(tests[0]["output"], "begun\n");
    assert_eq!((&tests[1]["exit_code"], &tests[1]["signal"]), (&json!(-1), &json!(11)));
    assert_eq!((&tests[2]["passed"], &tests[2]["exit_code"]), (&json!(true), &json!(0)));
}

#[test]
fn a_solution_that_does_not_apply_or_leads_out_is_the_tasks_fault() {
    let scene = Scene::new(&ANSWER);
    for patch in [
        SOLUTION.replace("-41", "-40"),
        SOLUTION.replace("answer", "../answer"),
        "diff --git a/.git/config b/.git/config\nnew file mode 100644\n--- /dev/null\n\
         +++ b/.git/config\n@@ -0,0 +1 @@\n+x\n"
            .to_owned(),
    ] {
        let oracle = scene.write("oracle.patch", &patch);
        let ended = scene.evaluate(&["--oracle", &oracle, "--json"]);
        let result = ended.json();
        assert_eq!((ended.code, &result["verdict"]), (4, &json!("infra_error")), "{patch}");
        assert_eq!(result["failure"]["code"], "patch.rejected", "{patch}");
    }
}

#[test]
fn what_ended_an_evaluation_early_is_one_line_on_stderr() {
    let scene = Scene::new(&ANSWER);
    let oracle = scene.write("oracle.patch", &SOLUTION.replace("-41", "-40"));
    let ended = scene.evaluate(&["--oracle", &oracle]);
    assert_eq!((ended.code, ended.stdout.as_str()), (4, "infra_error\n"), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("patch.rejected: running_agent: the patch does not apply"), "{last}");

    let task = scene.path("bare");
    fs::create_dir(&task).unwrap();
    fs::write(task.join("workspace.yaml"), "files: nowhere\n").unwrap();
    let ended = scene.evaluate_task(task.to_str().unwrap(), &["--nop"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (4, "infra_error\n"), "{ended:?}");
    let last = ended.stderr.lines().last().unwrap();
    assert!(last.starts_with("task.invalid: downloading_task: "), "{last}");
}

#[test]
fn a_time_beyond_the_agents_names_its_option() {
    let scene = Scene::new(&ANSWER);
    let agent = scene.write("agent.sh", ":");
    let refused = scene.evaluate(&["--agent", &agent, "--timeout", "601s"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{refused:?}");
    assert!(refused.stderr.contains("--timeout: at most 600 s"), "{refused:?}");
}

#[test]
fn runs_are_repeated_and_compared() {
    let scene = Scene::new(&ANSWER);
    let ended = scene.evaluate(&["--nop", "--repeat", "2", "--json"]);
    let result = ended.json();
    assert_eq!((ended.code, &result["flaky"]), (1, &json!(false)), "{ended:?}");
    let [first, second] = &result["runs"].as_array().unwrap()[..] else { panic!("{result}") };
    assert_ne!(first["eval_id"], second["eval_id"]);
    assert_eq!(second["phases"][2]["cached"], true);
}

#[test]
fn wrong_options_are_usage_errors() {
    let scene = Scene::new(&ANSWER);
    let agent = scene.write("agent.x", "");
    for arguments in [
        &[][..],
        &["--nop", "--oracle", &agent],
        &["--agent", &agent],
        &["--agent", "/nowhere"],
        &["--nop", "--repeat", "0"],
        &["--nop", "--language", "python"],
    ] {
        assert_eq!(scene.evaluate(arguments).code, 2, "{arguments:?}");
    }
}

#[test]
fn a_patch_makes_of_the_base_what_the_agent_left() {
    let scene = Scene::new(&[
        ("files/text", "one\r\ntwo"),
        ("files/gone/deep", "x\n"),
        ("files/run.sh", "exit 0\n"),
        ("files/was_directory/x", "x\n"),
        ("files/.gitattributes", "* text eol=lf\n"),
        ("tests/pass_to_pass_1.sh", "cmp text <(printf 'one\\r\\nthree')\nreadlink link\n"),
    ]);
    let agent = scene.write(
        "agent.sh",
        "set -e\nprintf 'one\\r\\nthree' > text; rm -r gone; chmod +x run.sh\n\
         rm -r was_directory; echo file > was_directory; ln -s text link\n\
         printf '\\0\\377bytes' > bytes; mkdir 'a b'; echo q > \"a b/q\\\"uo
te\"\n",
    );
    let patch = scene.path("agent.patch");
    let ended = scene.evaluate(&["--agent", &agent, "--patch", patch.to_str().unwrap(), "--json"]);
    assert_eq!(ended.json()["verdict"], "resolved", "{ended:?}");
    let applied = scene.path("task/files");
    let git = |words: &[&str]| {
        let status = Command::new("git").current_dir(&applied).args(words).status().unwrap();
        assert!(status.success(), "{words:?}");
    };
    git(&["init", "-q"]);
    fs::write(applied.join(".git/info/attributes"), "* -text\n").unwrap();
    git(&["apply", "--whitespace=nowarn", patch.to_str().unwrap()]);
    let read = |path: &str| fs::read(applied.join(path)).unwrap();
    assert_eq!(read("text"), b"one\r\nthree");
    assert_eq!(read("bytes"), b"\0\xffbytes");
    assert_eq!(read("was_directory"), b"file\n");
    assert_eq!(read("a b/q\"uo\nte"), b"q\n");
    assert_eq!(fs::read_link(applied.join("link")).unwrap().to_str(), Some("text"));
    assert!(!applied.join("gone").exists());
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(applied.join("run.sh")).unwrap());
    assert_eq!(mode & 0o111, 0o111);
}

#[test]
fn a_repository_lies_where_its_task_says() {
    for place in ["/app", "/root/project", "/var/www/html", "/opt"] {
        let scene = Scene::new(&ANSWER);
        fs::write(
            scene.path("task/workspace.yaml"),
            format!("files: files\nworkdir: {place}\ninstall: [\"pwd > $REPO_DIR/place\"]\n"),
        )
        .unwrap();
        fs::write(
            scene.path("task/tests/fail_to_pass_1.sh"),
            format!("set -e; cmp answer {place}/answer; grep -x 42 answer; test $PWD = {place}\n"),
        )
        .unwrap();
        let result =
            scene.agent("set -e; echo 42 > answer; : > /var/tmp/x; ls -A /opt; cat place; pwd; ls");
        assert_eq!(result["verdict"], "resolved", "{place}: {result:#}");
        let output = result["agent_output"].as_str().unwrap();
        assert!(output.ends_with(&format!("{place}\n{place}\nanswer\nplace\n")), "{output}");
    }
}

#[test]
fn a_directory_of_the_system_is_no_place_for_a_repository() {
    for place in ["/", "/usr/src/app", "/lib64", "/tests", "/deps/x", "/tmp/x", "/var"] {
        let scene = Scene::new(&ANSWER);
        let description = format!("files: files\nworkdir: {place}\n");
        fs::write(scene.path("task/workspace.yaml"), description).unwrap();
        let result = scene.evaluate(&["--nop", "--json"]).json();
        assert_eq!(result["failure"]["code"], "task.invalid", "{place}");
        let details = json!({"file": "workspace.yaml", "field": "workdir"});
        assert_eq!(result["failure"]["details"], details, "{place}");
    }
}

#[test]
fn maven_and_gradle_find_the_proxy_in_install_and_agent() {
    let scene = Scene::new(&ANSWER);
    let install = "cp ~/.m2/settings.xml settings.xml; cp ~/.gradle/gradle.properties . ; \
                   echo own > ~/.gradle/gradle.properties";
    let description = json!({"files": "files", "install": [install]}).to_string();
    fs::write(scene.path("task/workspace.yaml"), description).unwrap();
    // Maven asks for a plugin, by the proxy of its settings alone: the variable of Java is away.
    let agent = scene.write(
        "agent.sh",
        "cmp settings.xml ~/.m2/settings.xml && cat settings.xml gradle.properties ~/.gradle/*\n\
         export MAVEN_OPTS=-Duser.home=$HOME; unset JAVA_TOOL_OPTIONS\n\
         ! type mvn > /tmp/x || mvn -q -B help:help &> /tmp/x\n\
         rm ~/.m2/settings.xml; curl -s http://last.example > /tmp/x\n\
         ! type mvn > /tmp/x || mvn -q -B help:help &> /tmp/x\n",
    );
    let hosts = [("EVAL_INSTALL_HOSTS", "index.example"), ("EVAL_AGENT_HOSTS", "api.example")];
    let task = scene.path("task");
    let ended = scene.evaluate_with(task.to_str().unwrap(), &["--agent", &agent, "--json"], &hosts);
    let result = ended.json();
    let output = result["agent_output"].as_str().unwrap();
    assert!(output.starts_with("<settings><proxies>"), "{result:#}");
    assert!(output.contains("<port>3128</port>"), "{output}");
    // A file of install's own is kept for the agent.
    assert!(
        output.ends_with("systemProp.http.nonProxyHosts=localhost|127.*|[::1]\nown\n"),
        "{output}"
    );
    let asked: Vec<&str> = result["egress"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["host"].as_str().unwrap())
        .collect();
    assert_eq!(asked.last(), Some(&"last.example"), "{asked:?}");
    let has_maven = std::path::Path::new("/usr/bin/mvn").exists();
    assert_eq!(asked.contains(&"repo.maven.apache.org"), has_maven, "{asked:?}");
}
