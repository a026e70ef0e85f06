//! Each fault that the contract lists, alone in a file.

use crate::validate::{HEAD, case, errors, findings, validate};

/// What is behind [`HEAD`], the path of the only error, and its code.
const FAULTS: &[(&str, &str, &str)] = &[
    ("container: {}", "container.image", "missing"),
    ("source: {repo: a/b}", "source.commit", "missing"),
    ("fixtures: {repo: a/b}", "fixtures.commit", "missing"),
    ("environment: {kind: command}", "environment.commands", "missing"),
    ("environment: {kind: command, commands: []}", "environment.commands", "missing"),
    ("graders: [{type: command}]", "graders[0].cmd", "missing"),
    ("graders: [{type: implemented}, {type: tests, junit_xml: a}]", "graders[1].cmd", "missing"),
    ("graders: [{type: swebench}]", "graders[0].fail_to_pass", "missing"),
    ("graders: [{cmd: x}]", "graders[0].type", "missing"),
    ("harnesses: {m: {kind: command}}", "harnesses.m.argv", "missing"),
    ("harnesses: {m: {argv: [a]}}", "harnesses.m.kind", "missing"),
    ("harnesses: {m: {kind: job}}", "harnesses.m.command", "missing"),
    (
        "harnesses: {m: {kind: job, command: {argv: [a], cwd: 1}}}",
        "harnesses.m.command.cwd",
        "wrong_type",
    ),
    (
        "harnesses: {m: {kind: job, command: {argv: [a], cmd: b}}}",
        "harnesses.m.command.cmd",
        "unknown_key",
    ),
    (
        "harnesses: {m: {kind: job, command: {argv: [a]}, workspace: {}}}",
        "harnesses.m.workspace",
        "unknown_key",
    ),
    ("harnesses: {m: {kind: job, request: {}}}", "harnesses.m.request.command", "missing"),
    ("harnesses: {m: {kind: job, request: 1}}", "harnesses.m.request", "wrong_type"),
    (
        "harnesses: {m: {kind: job, request: {command: {argv: [a], cmd: b}}}}",
        "harnesses.m.request.command.cmd",
        "unknown_key",
    ),
    (
        "harnesses: {m: {kind: job, request: {command: {argv: [a]}, job_id: b}}}",
        "harnesses.m.request.job_id",
        "unknown_key",
    ),
    (
        "harnesses: {m: {kind: job, request: {command: {argv: [a]}}, command: {argv: [a]}}}",
        "harnesses.m.request",
        "conflict",
    ),
    (
        "harnesses: {m: {kind: job, command: {argv: [a]}, limits: {timeout_ms: 0}}}",
        "harnesses.m.limits.timeout_ms",
        "invalid_value",
    ),
    (
        "harnesses: {m: {kind: job, command: {argv: [a]}, policy: {network: {alow: [a]}}}}",
        "harnesses.m.policy.network.alow",
        "unknown_key",
    ),
    (
        "harnesses: {m: {kind: job, command: {argv: [a]}, policy: {network: {secrets: {k: {value: written-here, hosts: [a.b]}}}}}}",
        "harnesses.m.policy.network.secrets.k.value",
        "invalid_value",
    ),
    ("environment: {env: {A: 1}}", "environment.env.A", "wrong_type"),
    ("environment: {env: {A: null}}", "environment.env.A", "wrong_type"),
    ("environment: {timeout_s: '9'}", "environment.timeout_s", "wrong_type"),
    ("environment: []", "environment", "wrong_type"),
    ("task2: 1", "task2", "unknown_key"),
    ("setup: {stub: [{file: a, function: f, x: 1}]}", "setup.stub[0].x", "unknown_key"),
    ("harnesses: {m: {kind: nope}}", "harnesses.m.kind", "invalid_value"),
    ("harnesses: {nop: {kind: command, argv: [a]}}", "harnesses.nop", "invalid_value"),
    ("environment: {kind: conda}", "environment.kind", "invalid_value"),
    ("environment: {install: wheel}", "environment.install", "invalid_value"),
    ("source: {repo: a/b, commit: c, isolation: x}", "source.isolation", "invalid_value"),
    ("availability: maybe", "availability", "invalid_value"),
    ("container: {image: a, backend: lxc}", "container.backend", "invalid_value"),
    ("graders: [{type: nope}]", "graders[0].type", "invalid_value"),
    ("environment: {timeout_s: 0}", "environment.timeout_s", "invalid_value"),
    ("setup: {timeout_s: -1}", "setup.timeout_s", "invalid_value"),
    ("graders: [{type: implemented, weight: -1}]", "graders[0].weight", "invalid_value"),
    ("expect: {pass_threshold: 1.5}", "expect.pass_threshold", "invalid_value"),
    ("limits: {processes: 0}", "limits.processes", "invalid_value"),
    ("container: {image: ''}", "container.image", "invalid_value"),
    ("harnesses: {m: {kind: command, argv: []}}", "harnesses.m.argv", "invalid_value"),
    ("source: {repo: -a/b, commit: c}", "source.repo", "invalid_value"),
    ("source: {repo: 'ext::sh -c x', commit: c}", "source.repo", "invalid_value"),
    ("source: {repo: a/b, commit: -c}", "source.commit", "invalid_value"),
    ("environment: {egress: ['a b']}", "environment.egress[0]", "invalid_value"),
    (
        "harnesses: {m: {kind: command, argv: [a], network: {secrets: {k: {value: sesame-sesame, hosts: [a.b]}}}}}",
        "harnesses.m.network.secrets.k.value",
        "invalid_value",
    ),
    (
        "harnesses: {m: {kind: command, argv: [a], network: {alow: []}}}",
        "harnesses.m.network.alow",
        "unknown_key",
    ),
    (
        "harnesses: {m: {kind: command, argv: [a], network: {}, egress: []}}",
        "harnesses.m.network",
        "conflict",
    ),
    (
        "graders: [{type: swebench, fail_to_pass: [a], cmd_prefix: pytest}]",
        "graders[0].cmd_prefix",
        "conflict",
    ),
    (
        "graders: [{type: swebench, fail_to_pass: [a], cmd_prefix: 'python3 -m pytest tests'}]",
        "graders[0].cmd_prefix",
        "conflict",
    ),
    (
        "graders: [{type: swebench, fail_to_pass: [a], cmd_prefix: 'python3 -m pytest -q; true'}]",
        "graders[0].cmd_prefix",
        "conflict",
    ),
    ("source: {path: ., repo: a/b, commit: c}", "source", "conflict"),
    ("source: {}", "source", "conflict"),
    ("source: {path: ., subdir: x}", "source.subdir", "conflict"),
    ("source: {repo: a/b, commit: c, isolation: worktree}", "source.isolation", "conflict"),
    ("oracle: {patch: case.yaml, run: [a]}", "oracle", "conflict"),
    (
        "environment: {kind: command, commands: [a], requirements: [a]}",
        "environment.requirements",
        "conflict",
    ),
    (
        "environment: {kind: command, commands: [a], requirement_files: []}",
        "environment.requirement_files",
        "conflict",
    ),
    (
        "environment: {kind: command, commands: [a], install: none}",
        "environment.install",
        "conflict",
    ),
    (
        "environment: {kind: command, commands: [a], pip_args: [a]}",
        "environment.pip_args",
        "conflict",
    ),
    (
        "environment: {kind: command, commands: [a], system_site_packages: true}",
        "environment.system_site_packages",
        "conflict",
    ),
    ("environment: {kind: command, commands: [a], venv: true}", "environment.venv", "conflict"),
    ("graders: [{type: pytest, inject: [../a]}]", "graders[0].inject[0]", "unsafe_path"),
    ("graders: [{type: pytest, inject: [/etc/passwd]}]", "graders[0].inject[0]", "unsafe_path"),
    (
        "graders: [{type: pytest, inject: [{src: case.yaml, dest: ../x}]}]",
        "graders[0].inject[0].dest",
        "unsafe_path",
    ),
    ("setup: {stub: [{file: ../a.py, function: f}]}", "setup.stub[0].file", "unsafe_path"),
    ("container: {image: a, caches: [/root]}", "container.caches[0]", "unsafe_path"),
    ("source: {repo: a/b, commit: c, subdir: a/../../b}", "source.subdir", "unsafe_path"),
    ("fixtures: {repo: a/b, commit: c, subdir: ..}", "fixtures.subdir", "unsafe_path"),
    ("environment: {requirement_files: [../r]}", "environment.requirement_files[0]", "unsafe_path"),
    ("graders: [{type: files, expect_dir: ../x}]", "graders[0].expect_dir", "unsafe_path"),
    ("oracle: {patch: ../x}", "oracle.patch", "unsafe_path"),
    ("harnesses: {m: {kind: replay, patch: /x}}", "harnesses.m.patch", "unsafe_path"),
    (
        "environment: {requirement_files: [gone.txt]}",
        "environment.requirement_files[0]",
        "not_found",
    ),
    ("oracle: {patch: gone}", "oracle.patch", "not_found"),
    ("source: {path: gone}", "source.path", "not_found"),
    ("graders: [{type: pytest, inject: [gone]}]", "graders[0].inject[0]", "not_found"),
    ("graders: [{type: files, expect_dir: case.yaml}]", "graders[0].expect_dir", "not_found"),
    ("id: b", "id", "duplicate_key"),
    ("environment: {env: {A: b, A: c}}", "environment.env.A", "duplicate_key"),
];

#[test]
fn each_fault_has_its_path_and_its_code() {
    for (yaml, path, code) in FAULTS {
        let found = errors(case(format!("{HEAD}{yaml}\n")).path());
        assert_eq!(found, [((*path).to_owned(), (*code).to_owned())], "{yaml}");
    }
}

#[test]
fn each_fault_of_a_matrix_has_its_path_and_its_code() {
    for (matrix, path, code) in [
        ("{}", "matrix.harnesses", "missing"),
        ("{harnesses: [oracle], models: [m]}", "oracle", "missing"),
        ("{harnesses: [nop], models: []}", "matrix.models", "invalid_value"),
        ("{harnesses: [nop], models: [4.1]}", "matrix.models[0]", "wrong_type"),
        ("{harnesses: [nop], models: [m], trials: '2'}", "matrix.trials", "wrong_type"),
        ("{harnesses: [nop], models: [m], trials: true}", "matrix.trials", "wrong_type"),
        ("{harnesses: [nop], models: [m], trials: 0}", "matrix.trials", "invalid_value"),
        ("{harnesses: [nop], models: [m], entries: []}", "matrix", "conflict"),
        ("{entries: [{harness: ghost, models: [m]}]}", "matrix.entries[0].harness", "not_found"),
        ("{entries: [{harness: nop}]}", "matrix.entries[0].models", "missing"),
    ] {
        let yaml = HEAD.replace("{harnesses: [nop], models: [m]}", matrix);
        let found = errors(case(&yaml).path());
        assert_eq!(found.first(), Some(&(path.to_owned(), code.to_owned())), "{matrix}: {found:?}");
    }
}

#[test]
fn each_warning_has_its_path_and_its_code() {
    for (yaml, path, code) in [
        ("environment: {venv: false}", "environment.venv", "inert"),
        ("artifacts: {skills: [a]}", "artifacts", "no_effect"),
        ("observe: {tracing: true}", "observe", "no_effect"),
        ("source: {path: ., isolation: worktree}", "source.isolation", "no_effect"),
        ("container: {image: a}\nenvironment: {share: true}", "environment.share", "no_effect"),
        (
            "harnesses: {m: {kind: job, command: {argv: [a]}, egress: [a.b]}}",
            "harnesses.m.egress",
            "no_effect",
        ),
        ("graders: [{type: trace, anything: 1}]", "graders[0].type", "unsupported_grader"),
        ("graders: [{type: efficiency}]", "graders[0].type", "unsupported_grader"),
        ("graders: [{type: tool_correctness}]", "graders[0].type", "unsupported_grader"),
        ("graders: [{type: tests, cmd: a}]", "graders[0]", "console_counts"),
        ("graders: [{type: pytest, cmd: a}]", "graders[0]", "console_counts"),
    ] {
        let (status, report) = validate(case(format!("{HEAD}{yaml}\n")).path());
        assert_eq!(status, 0, "{yaml}: {report}");
        assert_eq!(findings(&report["warnings"]), [(path.to_owned(), code.to_owned())], "{yaml}");
    }
}
