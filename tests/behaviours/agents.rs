//! What an agent can do, and what of it is left.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use cofferdam_test_server::host::tenants;
use serde_json::{Value, json};

use crate::scene::{EvaluationScene, WANTS_DONE, shell_agent};

#[test]
fn b17_an_agent_over_its_time_is_cancelled_with_its_output_kept_and_nothing_alive() {
    let scene = EvaluationScene::with(&[("AGENT_TIMEOUT_SECS", "1")]);
    let result = scene.agent(&scene.serve(&WANTS_DONE), "echo begun; setsid sleep 600 & sleep 600");
    let seen = ["verdict", "status", "passed"].map(|key| result[key].clone());
    assert_eq!(seen, [json!("timed_out"), json!("cancelled"), json!(false)], "{result:#}");
    assert!(result["error"].as_str().unwrap().contains("running_agent"), "{result:#}");
    assert_eq!(result["failure"]["limit"], "wall_time", "{result:#}");
    assert_eq!(result["agent_output"], "begun\n");
    assert!(tenants(scene.service.pid()).is_empty());
}

#[test]
fn b18_a_daemon_of_the_agent_delays_nothing_and_does_not_see_the_tests() {
    let scene = EvaluationScene::new();
    let url = scene.serve_test("test ! -e planted && test -e done\n");
    let daemon = "(while :; do echo x; touch planted /tmp/planted; sleep 0.01; done)";
    let script = format!("touch done; setsid bash -c '{daemon}' & sleep 0.1; rm -f planted");
    let began = Instant::now();
    let result = scene.agent(&url, &script);
    assert!(began.elapsed() < Duration::from_secs(60));
    let patch = result["agent_patch"].as_str().unwrap();
    // Whether the daemon made it again before it died with the agent's sandbox is chance.
    assert_eq!(result["passed"] == true, !patch.contains("planted"), "{result:#}");
    assert!(patch.contains("done"), "{result:#}");
    assert!(tenants(scene.service.pid()).is_empty());
}

#[test]
fn b20_a_request_names_a_shorter_time_but_no_longer_one() {
    let scene = EvaluationScene::new();
    let mut body = shell_agent(&scene.serve(&WANTS_DONE), "sleep 600");
    body["timeout_secs"] = json!(1);
    let result = scene.evaluate(&body);
    assert_eq!(result["verdict"], "timed_out", "{result:#}");
    let wall = result["agent"]["usage"]["wall_ms"].as_u64().unwrap();
    assert!((900..5000).contains(&wall), "{result:#}");
    body["timeout_secs"] = json!(601);
    assert_eq!(scene.post(&body).status, 400);
}

#[test]
fn what_an_agent_left_at_its_limit_is_graded_on_request_and_the_phase_names_the_limit() {
    let scene = EvaluationScene::new();
    let mut body = shell_agent(&scene.serve(&WANTS_DONE), "touch done; sleep 600");
    body["timeout_secs"] = json!(1);
    body["on_agent_limit"] = json!("grade");
    let result = scene.evaluate(&body);
    assert_eq!((&result["verdict"], &result["failure"]), (&json!("resolved"), &json!(null)));
    let phases = result["phases"].as_array().unwrap().iter();
    let limits: Vec<_> = phases.map(|phase| (&phase["step"], &phase["limit"])).collect();
    assert!(limits.contains(&(&json!("running_agent"), &json!("wall_time"))), "{result:#}");
    assert!(limits.contains(&(&json!("running_tests"), &json!(null))), "{result:#}");
}

#[test]
fn b31_an_agent_sees_documented_variables_only() {
    let scene = EvaluationScene::with(&[("HOST_SECRET", "of-the-service"), ("AUTH_TOKEN", "")]);
    let mut body = shell_agent(&scene.serve(&WANTS_DONE), "env");
    body["agent_env"] = json!({"MODEL": "m1", "API_KEY": "a-secret-value"});
    let result = scene.evaluate(&body);
    let output = result["agent_output"].as_str().unwrap();
    let mut names: Vec<&str> =
        output.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    names.sort_unstable();
    let allowed = [
        "API_KEY",
        "CARGO_HOME",
        "GEM_HOME",
        "GOMODCACHE",
        "GOPATH",
        "HOME",
        "LANG",
        "MODEL",
        "OLDPWD",
        "PATH",
        "PWD",
        "REPO_DIR",
        "SHLVL",
        "TASK_PROMPT",
        "TMPDIR",
        "VIRTUAL_ENV",
        "_",
        "npm_config_cache",
        "npm_config_prefix",
    ];
    for name in &names {
        assert!(allowed.contains(name), "{name}: {output}");
    }
    assert!(names.contains(&"TASK_PROMPT") && names.contains(&"REPO_DIR"), "{output}");
    assert!(output.contains("MODEL=m1\n") && output.contains("API_KEY=[redacted]\n"), "{output}");
    assert!(!result.to_string().contains("a-secret-value"));
}

#[test]
fn b32_an_agent_finds_neither_tests_nor_sessions_nor_files_of_the_service() {
    let scene = EvaluationScene::new();
    let url = scene.serve_test("# a-word-of-the-test\ntest -e done\n");
    let sleeping = scene.begin(&shell_agent(&url, "echo of-another-session >other; sleep 600"));
    scene.wait(&sleeping, |result| result["step"] == "running_agent");
    let script = r#"
ls -d /proc/[0-9]* | wc -l
ls / /tmp /agent /task
grep -rsl --exclude-dir=proc --exclude-dir=sys 'a-word-of-the-t[e]st\|of-another-sess[i]on' /workspace /tmp /agent /task /deps /home /root /var/tmp /run /srv /dev/shm
ls "$SESSIONS" 2>&1
exit 0
"#;
    let script = script.replace("$SESSIONS", scene.path("sessions").to_str().unwrap());
    let result = scene.agent(&url, &script);
    let output = result["agent_output"].as_str().unwrap();
    let processes: u64 = output.lines().next().unwrap().trim().parse().unwrap();
    assert!(processes < 8, "{output}");
    assert!(!output.contains("/workspace/") && !output.contains("fail_to_pass"), "{output}");
    assert!(output.contains("No such file") || output.contains("Permission denied"), "{output}");
    assert_eq!(scene.ask("DELETE", &format!("/evaluate/{sleeping}"), "").status, 202);
    scene.end(&sleeping);
}

#[test]
fn b33_the_tests_files_land_in_the_repository_whatever_stands_there() {
    let scene = EvaluationScene::new();
    let outside = scene.path("outside");
    fs::write(&outside, "as it was").unwrap();
    for plant in [
        format!("ln -s {} helper.txt", outside.display()),
        "mkdir -p helper.txt/d".to_owned(),
        "mkfifo helper.txt".to_owned(),
        "ln -s /tmp data; echo forged >helper.txt".to_owned(),
        "echo 'raise SystemExit(0)' >conftest.py; echo forged >helper.txt".to_owned(),
    ] {
        let url = scene.serve(&[
            ("workspace.yaml", "files: files\n"),
            ("prompt.md", ""),
            ("files/a", "1\n"),
            ("tests/helper.txt", "of the task\n"),
            ("tests/data/deep.txt", "deep\n"),
            (
                "tests/fail_to_pass_1.sh",
                "set -e\ntest ! -L helper.txt -a ! -L data\ngrep -qx 'of the task' helper.txt\n\
                 grep -qx deep data/deep.txt\ntest ! -e conftest.py\n",
            ),
        ]);
        let result = scene.agent(&url, &plant);
        assert_eq!(result["verdict"], "resolved", "{plant}: {result:#}");
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "as it was");
}

#[test]
fn b34_tests_see_the_agents_changes_and_nothing_else_of_it() {
    let scene = EvaluationScene::new();
    let url = scene.serve_test(
        "set -e\ntest -e done\ntest ! -e /tmp/left -a ! -e /tmp/home/.bashrc\n\
         test \"$(git config core.hooksPath || true)\" = ''\ntest ! -e /deps/bin/python3\n\
         python3 -c 'import sys; assert \"sitecustomize\" not in sys.modules or \"agent\" not in sys.modules[\"sitecustomize\"].__dict__'\n",
    );
    let script = "touch done /tmp/left\nmkdir -p /tmp/home /deps/bin\necho 'exit 1' >/tmp/home/.bashrc\n\
                  git config core.hooksPath /tmp/hooks\nprintf '#!/bin/sh\\nexit 1\\n' >/deps/bin/python3\n\
                  chmod +x /deps/bin/python3\necho 'agent = 1' >sitecustomize.py\nexit 0\n";
    let result = scene.agent(&url, script);
    assert_eq!(result["verdict"], "resolved", "{result:#}");
    let withheld = result["patch"]["withheld"].as_array().unwrap();
    assert!(withheld.contains(&json!("sitecustomize.py")), "{result:#}");
}

#[test]
fn b35_output_is_cut_at_its_limit_and_is_text() {
    let scene = EvaluationScene::with(&[("MAX_OUTPUT_BYTES", "1000")]);
    let url = scene.serve(&WANTS_DONE);
    let result = scene.agent(&url, "head -c 3000000 /dev/zero | tr '\\0' x; touch done");
    let output = result["agent_output"].as_str().unwrap();
    let cut = format!("{}... [truncated at 1000 bytes, total 3000000]", "x".repeat(1000));
    assert_eq!(output, cut);
    assert_eq!((&result["agent"]["truncated"], &result["passed"]), (&json!(true), &json!(true)));
    let result = scene.agent(&url, "printf 'a\\377b'");
    assert_eq!(result["agent_output"], "a\u{fffd}b");
    let mut body = shell_agent(&url, "yes");
    body["timeout_secs"] = json!(1);
    let result = scene.evaluate(&body);
    assert_eq!(result["verdict"], "timed_out");
    assert!(result["agent_output"].as_str().unwrap().len() < 1100);
}

#[test]
fn b36_a_full_disk_is_named() {
    let scene = EvaluationScene::with(&[("DISK_QUOTA_MB", "16")]);
    let url = scene.serve(&WANTS_DONE);
    // Writes of different sizes leave different remains free.
    for script in [
        "head -c 64M /dev/zero >large || exit 7",
        "cat /dev/zero >large || exit 7",
        "dd if=/dev/zero of=large bs=1M || exit 7",
        "dd if=/dev/zero of=large bs=4M || exit 7",
    ] {
        let result = scene.agent(&url, script);
        assert_eq!(result["failure"]["limit"], "disk", "{script} {result:#}");
        assert_eq!(result["verdict"], "unresolved", "{script} {result:#}");
        assert!(result["error"].as_str().unwrap_or_default().contains("disk quota"), "{result:#}");
    }
}

#[test]
fn b37_a_memory_hog_and_a_fork_bomb_are_named_and_the_service_goes_on() {
    let scene = EvaluationScene::with(&[("EVAL_MEMORY_MAX", "64MiB"), ("EVAL_PIDS_MAX", "32")]);
    let url = scene.serve(&WANTS_DONE);
    let hog = json!({"task_url": url, "agent_code": "x = bytearray(1 << 30)"});
    let result = scene.evaluate(&hog);
    let seen = ["verdict", "passed"].map(|key| result[key].clone());
    assert_eq!(seen, [json!("unresolved"), json!(false)], "{result:#}");
    assert_eq!(result["failure"]["limit"], "memory", "{result:#}");
    assert_eq!(result["failure"]["code"], "agent.limit_exceeded", "{result:#}");
    let mut bomb = shell_agent(&url, "b() { b | b & }; b; sleep 600");
    bomb["timeout_secs"] = json!(3);
    let result = scene.evaluate(&bomb);
    assert_eq!(result["passed"], false, "{result:#}");
    assert!(!result["failure"]["limit"].is_null(), "{result:#}");
    assert_eq!(scene.agent(&url, "touch done")["passed"], true);
    assert_eq!(scene.service.get("/health").status, 200);
}

#[test]
fn b38_a_binary_file_of_the_tests_is_in_the_repository_to_the_byte() {
    let scene = EvaluationScene::new();
    let task = tempfile::TempDir::new().unwrap();
    crate::scene::write(task.path(), &WANTS_DONE);
    let bytes: Vec<u8> = (0..=255_u8).cycle().take(100_000).collect();
    fs::write(task.path().join("tests/data.bin"), &bytes).unwrap();
    let script = "set -e\ntest \"$(wc -c <data.bin)\" = 100000\n\
                  python3 -c 'assert open(\"data.bin\",\"rb\").read()==(bytes(range(256))*391)[:100000]'\n";
    fs::write(task.path().join("tests/fail_to_pass_1.sh"), script).unwrap();
    let url = scene.pack("binary.tar", task.path(), &[]);
    let result = scene.agent(&url, "printf forged >data.bin");
    assert_eq!(result["verdict"], Value::from("resolved"), "{result:#}");
}

/// Serves the wheel of a package with the module and the program `helper`; returns its URL.
pub fn serve_wheel(scene: &EvaluationScene) -> String {
    const MAKE: &str = "
import sys, zipfile
info = 'helper-1.0.dist-info/'
with zipfile.ZipFile(sys.argv[1], 'w') as wheel:
    wheel.writestr('helper.py', 'def main():\\n    print(\"helped\")\\n')
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: helper\\nVersion: 1.0\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'entry_points.txt', '[console_scripts]\\nhelper = helper:main\\n')
    wheel.writestr(info + 'RECORD', '')
";
    let name = "helper-1.0-py3-none-any.whl";
    let mut make = Command::new("python3");
    make.args(["-c", MAKE]).arg(scene.path("served").join(name));
    assert!(make.status().unwrap().success());
    scene.url(name)
}

#[test]
fn what_an_agent_needs_is_installed_for_it_alone_and_once_for_all_tasks() {
    let hosts = [("EVAL_INSTALL_HOSTS", "127.0.0.1:*"), ("EVAL_INSTALL_ENV", "PIP_NO_INDEX=1")];
    let mut scene = EvaluationScene::with(&hosts);
    let install = json!([format!("pip install {}", serve_wheel(&scene)), "pwd; ls -A; ls /agent"]);
    let test = "test -e done && ! command -v helper && ! test -e /agent/venv";
    let script = "helper && python3 -c 'import helper' && command -v helper && ls /agent && echo $VIRTUAL_ENV
        for place in /agent /agent/venv /agent/venv/bin/helper; do touch $place/x 2>/dev/null; done
        (echo x >> /agent/venv/bin/helper) 2>/dev/null || echo read-only
        case $PATH in /agent/venv/bin:/deps/venv/bin:*) touch done;; esac";
    let mut request = shell_agent(&scene.serve_test(test), script);
    request["agent_install"] = install.clone();
    let wanted = "helped\n/agent/venv/bin/helper\nagent.sh\nvenv\n/deps/venv\nread-only\n";
    let cached = |result: &Value| {
        let phases = result["phases"].as_array().unwrap().iter();
        let mut steps = phases.filter(|phase| phase["step"] == "installing_deps");
        steps.next().unwrap()["cached"].clone()
    };
    let first = scene.evaluate(&request);
    assert_eq!(
        (&first["verdict"], &first["agent_output"]),
        (&json!("resolved"), &json!(wanted)),
        "{first}"
    );
    assert_eq!(cached(&first), false);
    assert!(first["egress"].as_array().unwrap().iter().any(|one| one["step"] == "installing_deps"));
    let second = scene.evaluate(&request);
    assert_eq!((&second["verdict"], cached(&second)), (&json!("resolved"), json!(true)));
    // In another process, for the same task.
    let metric = |scene: &EvaluationScene| {
        let metrics = scene.ask("GET", "/metrics", "").body;
        let name = "cofferdam_cache_bytes{kind=\"bases\"} ";
        let found = metrics.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
        found.unwrap_or_else(|| panic!("{metrics}"))
    };
    let before = metric(&scene);
    scene.service.kill();
    scene.start_again();
    assert!(before > 0 && metric(&scene) == before, "{before}");
    let third = scene.evaluate(&request);
    assert_eq!(
        (&third["verdict"], &third["agent_output"]),
        (&json!("resolved"), &json!(wanted)),
        "{third}"
    );
    assert_eq!(cached(&third), true);
    // Without it there is no such environment.
    let plain = scene
        .agent(&scene.serve_test("test -e done"), "command -v helper || touch done; ls /agent");
    assert_eq!(
        (&plain["verdict"], &plain["agent_output"]),
        (&json!("resolved"), &json!("agent.sh\n"))
    );
}

#[test]
fn the_python_of_an_agent_finds_its_own_packages_and_those_of_the_task() {
    let scene = EvaluationScene::with(&[
        ("EVAL_INSTALL_HOSTS", "127.0.0.1:*"),
        ("EVAL_INSTALL_ENV", "PIP_NO_INDEX=1"),
    ]);
    let site = "$(python3 -c 'import site; print(site.getsitepackages()[0])')";
    let task = format!(
        "files: files\ninstall:\n  - printf 'PLACE = \"task\"' | tee {site}/project.py > {site}/helper.py\n"
    );
    let mut files = WANTS_DONE;
    files[0].1 = &task;
    let script =
        "python3 -c 'import project, helper; helper.main(); print(project.PLACE)' && touch done";
    let mut request = shell_agent(&scene.serve(&files), script);
    request["agent_install"] = json!([format!("pip install {}", serve_wheel(&scene))]);
    let result = scene.evaluate(&request);
    assert_eq!(
        (&result["verdict"], &result["agent_output"]),
        (&json!("resolved"), &json!("helped\ntask\n")),
        "{result}"
    );
}

#[test]
fn an_install_for_an_agent_that_fails_is_an_infra_error_that_names_its_command() {
    let scene = EvaluationScene::new();
    let mut request = shell_agent(&scene.serve(&WANTS_DONE), "touch done");
    for _ in 0..2 {
        request["agent_install"] = json!(["true", "echo what went wrong >&2; exit 3"]);
        let result = scene.evaluate(&request);
        assert_eq!(
            (&result["verdict"], &result["step"]),
            (&json!("infra_error"), &json!("installing_deps"))
        );
        let failure = &result["failure"];
        assert_eq!(failure["code"], "install.failed", "{failure}");
        let details = json!({"command": "echo what went wrong >&2; exit 3", "exit_code": 3, "tail": "what went wrong"});
        assert_eq!(failure["details"], details);
    }
    for (wrong, field) in [
        (json!("pip install x"), "agent_install"),
        (json!(["x", 1]), "agent_install[1]"),
        (json!([" "]), "agent_install[0]"),
        (json!(["x".repeat(65_537)]), "agent_install[0]"),
    ] {
        request["agent_install"] = wrong;
        let answer = scene.post(&request);
        assert!(answer.status == 400 && answer.body.contains(field), "{field}: {answer:?}");
    }
}
