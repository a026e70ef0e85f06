//! `POST /v1/execute` without contexts: blocks as programs.

mod contexts;

use serde_json::{Value, json};

use crate::exchange::{ask, command_line};
use crate::scene::{EngineScene, bearer, scene, scene_with_tokens};

fn block(language: &str, code: &str) -> Value {
    json!({"language": language, "code": code})
}

#[track_caller]
fn execute(scene: &EngineScene, body: &Value) -> Value {
    let reply = scene.post("/v1/execute", body);
    assert_eq!(reply.status, 200, "{}", reply.json());
    reply.json()
}

#[test]
fn blocks_run_in_their_order_and_a_failure_stops_none() {
    let Some(scene) = scene(&[]) else { return };
    let blocks = [
        block("python", "import sys; print('one'); print('two', file=sys.stderr)"),
        block("bash", "echo three; echo four >&2; exit 3"),
        block(" Ruby", "puts 5"),
        block("SH", "pwd; ls; echo \"$A\""),
    ];
    let answer = execute(&scene, &json!({"code_blocks": blocks, "env": {"A": "six"}}));
    let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["blocks", "output", "output_files", "workspace_id"]);
    assert_eq!((&answer["output_files"], &answer["workspace_id"]), (&json!([]), &json!(null)));
    let output = answer["output"].as_str().unwrap();
    let call = output.split("cmd=bash ").nth(1).unwrap().split('/').next().unwrap();
    let expected = format!(
        "one\ntwo\nError executing code block 1: command failed (cwd=src, cmd=bash \
         {call}/code_1.sh): three\nfour\n: exit status 3\nError executing code block 2: \
         unsupported language:  Ruby\n/workspace/src\n{call}\nsix\n"
    );
    assert_eq!(output, expected);
    let mut blocks = answer["blocks"].as_array().unwrap().clone();
    let duration = |block: &mut Value| block["duration_ms"].take().as_u64().unwrap();
    blocks.iter_mut().for_each(|block| assert!(duration(block) < 10_000));
    let of = |index, language, status, stdout, stderr, exit_code: Value| {
        json!({"index": index, "language": language, "status": status, "stdout": stdout,
               "stderr": stderr, "encoding": "utf-8", "exit_code": exit_code,
               "duration_ms": null, "limit": null, "results": [], "error": null,
               "context_id": null, "execution_count": null, "state_lost": false})
    };
    let last = format!("/workspace/src\n{call}\nsix\n");
    assert_eq!(blocks[0], of(0, "python", "ok", "one\n", "two\n", json!(0)));
    assert_eq!(blocks[1], of(1, "bash", "error", "three\n", "four\n", json!(3)));
    assert_eq!(blocks[2], of(2, " Ruby", "unsupported", "", "", json!(null)));
    assert_eq!(blocks[3], of(3, "SH", "ok", &last, "", json!(0)));
}

#[test]
fn without_a_workspace_the_files_live_for_the_call() {
    let Some(scene) = scene(&[]) else { return };
    let body = json!({"code_blocks": [block("sh", "echo x >kept; cat kept")], "execution_id": "e"});
    for _ in 0..2 {
        assert_eq!(execute(&scene, &body)["output"], "x\n");
        let none = json!({"workspaces": [], "next_cursor": null});
        assert_eq!(scene.get("/v1/workspaces").json(), none);
    }
    let workspace = scene.create(&json!({}));
    let id = workspace.rsplit('/').next().unwrap();
    let body = json!({"code_blocks": [block("sh", "echo x >>kept; cat kept")], "workspace_id": id});
    assert_eq!(execute(&scene, &body)["output"], "x\n");
    let answer = execute(&scene, &body);
    assert_eq!((&answer["output"], &answer["workspace_id"]), (&json!("x\nx\n"), &json!(id)));
    let modes =
        scene.sh(&workspace, "stat -c '%a %n' src/call_*/* | sed 's/call_[0-9a-f]*/C/' | sort -u");
    assert_eq!(modes, "755 src/C/code_0.sh\n");
}

#[test]
fn blocks_are_found_in_a_text() {
    let Some(scene) = scene(&[]) else { return };
    let text = "Look:\n```python\nprint(6 * 7)\n```\nand\n```bash\necho 43\n```\n";
    assert_eq!(execute(&scene, &json!({"text": text}))["output"], "42\n43\n");
    let delimiter = json!({"start": "<<", "end": ">>"});
    let body = json!({"text": "a<<sh\necho x\n>>", "delimiter": delimiter});
    assert_eq!(execute(&scene, &body)["output"], "x\n");
    let none = execute(&scene, &json!({"text": "nothing"}));
    assert_eq!((&none["output"], &none["blocks"]), (&json!(""), &json!([])));
}

#[test]
fn each_block_has_the_time_and_the_limits_of_the_call() {
    let Some(scene) = scene(&[]) else { return };
    let blocks = [block("sh", "echo begun; sleep 60"), block("sh", "echo next")];
    let answer = execute(&scene, &json!({"code_blocks": blocks, "timeout_ms": 3000}));
    let first = &answer["blocks"][0];
    assert_eq!((&first["status"], &first["limit"]), (&json!("timed_out"), &json!("wall_time")));
    assert_eq!((&first["exit_code"], &first["stdout"]), (&json!(-1), &json!("begun\n")));
    assert_eq!(answer["blocks"][1]["status"], "ok");
    let hungry = block("python", "x = bytearray(200 << 20)\nprint(len(x))");
    let body = json!({"code_blocks": [hungry], "limits": {"memory_mb": 64}});
    let first = &execute(&scene, &body)["blocks"][0];
    assert_eq!((&first["status"], &first["limit"]), (&json!("killed"), &json!("memory")));
    let long = block("python", "print('é' * 3000)");
    let body = json!({"code_blocks": [long], "limits": {"stdout_bytes": 1001}});
    let first = &execute(&scene, &body)["blocks"][0];
    assert_eq!(first["stdout"].as_str().unwrap(), "é".repeat(500));
    let bytes = block(
        "python",
        "import sys; sys.stdout.buffer.write(b'\\xff'); print('a', file=sys.stderr)",
    );
    let answer = execute(&scene, &json!({"code_blocks": [bytes]}));
    let first = &answer["blocks"][0];
    assert_eq!((&first["encoding"], &first["stdout"]), (&json!("base64"), &json!("/w==")));
    assert_eq!((&first["stderr"], &answer["output"]), (&json!("YQo="), &json!("\u{FFFD}a\n")));
}

#[test]
fn outputs_are_collected_after_the_last_block() {
    let Some(scene) = scene(&[]) else { return };
    let code = "mkdir -p ../out; echo a >../out/a.txt; echo b >../out/b.txt; echo c >../c.txt";
    let outputs = json!({"globs": ["$OUTPUT_DIR/*.txt", "c.txt"], "max_files": 2});
    let body = json!({"code_blocks": [block("sh", code)], "outputs": outputs});
    let files = execute(&scene, &body)["output_files"].clone();
    let names: Vec<_> = files.as_array().unwrap().iter().map(|file| &file["name"]).collect();
    assert_eq!(names, ["out/a.txt", "out/b.txt"]);
    assert_eq!(files[0]["content"], "a\n");
}

#[test]
fn a_wrong_request_runs_nothing() {
    let Some(scene) = scene(&[("ENGINE_RUNS_MAX", "1")]) else { return };
    let workspace = scene.create(&json!({}));
    let id = workspace.rsplit('/').next().unwrap();
    let touch = block("sh", "touch ran");
    let of = |key: &str, value: Value| {
        let mut body = json!({"code_blocks": [touch], "workspace_id": id});
        body[key] = value;
        body
    };
    for (body, status, code) in [
        (json!({}), 422, "validation.invalid_request"),
        (of("x", json!(1)), 422, "validation.invalid_request"),
        (of("text", json!("")), 422, "validation.invalid_request"),
        (of("timeout_ms", json!(3_600_001)), 422, "validation.invalid_request"),
        (of("env", json!({"A=": ""})), 422, "validation.invalid_request"),
        (of("execution_id", json!("e".repeat(257))), 422, "validation.invalid_request"),
        (of("limits", json!({"memory_mb": 1 << 20})), 422, "validation.invalid_request"),
        (of("outputs", json!({"x": 1})), 422, "validation.invalid_request"),
        (of("workspace_id", json!("ws_0")), 404, "workspace.not_found"),
        (of("context_id", json!("c_0")), 422, "validation.invalid_request"),
        (json!({"code_blocks": [touch], "stateful": true}), 422, "validation.invalid_request"),
    ] {
        scene.post("/v1/execute", &body).assert_error(status, code);
    }
    ask(&scene.service, "POST", "/v1/execute", "", b"{")
        .assert_error(400, "validation.invalid_request");
    assert_eq!(scene.sh(&workspace, "ls"), "metadata.json\nout\nruns\nskills\nwork\n");
    let session = json!({"cmd": "sleep", "args": ["60"]});
    assert_eq!(scene.post(&format!("{workspace}/sessions"), &session).status, 201);
    let body = json!({"code_blocks": [touch], "workspace_id": id});
    scene.post("/v1/execute", &body).assert_error(503, "engine.busy");
}

#[test]
fn a_planted_link_takes_no_source() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    scene.sh(&workspace, "mkdir /tmp/elsewhere; ln -s /tmp/elsewhere src");
    let id = workspace.rsplit('/').next().unwrap();
    let body = json!({"code_blocks": [block("sh", "echo ran")], "workspace_id": id});
    scene.post("/v1/execute", &body).assert_error(409, "file.through_link");
    assert_eq!(scene.sh(&workspace, "ls /tmp/elsewhere"), "");
}

#[test]
fn a_full_workspace_takes_no_source() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"policy": {"max_disk_bytes": 131_072}}));
    scene.run(&workspace, &json!({"cmd": "sh", "args": ["-c", "cat /dev/zero >big"]}));
    let id = workspace.rsplit('/').next().unwrap();
    let body = json!({"code_blocks": [block("sh", "echo ran")], "workspace_id": id});
    scene.post("/v1/execute", &body).assert_error(507, "workspace.disk_full");
}

#[test]
fn a_call_is_made_once_with_its_key_and_belongs_to_its_token() {
    let Some(scene) = scene_with_tokens(&[]) else { return };
    let headers = bearer(0);
    let made = scene.post_with("/v1/workspaces", &headers, &json!({})).json();
    let id = made["workspace_id"].as_str().unwrap();
    let code = block("sh", "echo x >>log; cat log");
    let body = json!({"code_blocks": [code], "workspace_id": id});
    let keyed = format!("{headers}idempotency-key: k\r\n");
    let first = scene.post_with("/v1/execute", &keyed, &body).json();
    assert_eq!(first["output"], "x\n");
    assert_eq!(scene.post_with("/v1/execute", &keyed, &body).json(), first);
    let other = scene.post_with("/v1/execute", &bearer(1), &body);
    other.assert_error(404, "workspace.not_found");
}

#[test]
fn the_command_line_answers_without_a_server() {
    if scene(&[]).is_none() {
        return;
    }
    let execute = |words: &[&str], stdin: &str| {
        let output = command_line(&[&["execute"], words].concat(), stdin.as_bytes(), &[]);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let text = "a\n```python\nx = 6\nprint(x)\n```\n```py\nprint(x)\n```\n";
    let (code, answer, _) = execute(&["-"], text);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((code, &answer["blocks"][0]["stdout"]), (Some(0), &json!("6\n")));
    assert_eq!(answer["blocks"][1]["status"], "error");
    let (code, answer, _) = execute(&["--stateful", "-"], text);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((code, &answer["output"]), (Some(0), &json!("6\n6\n")));
    let body = json!({"code_blocks": [block("sh", "echo $A; sleep 60")]}).to_string();
    let (_, answer, _) = execute(&["-", "--timeout-ms", "200", "--env", "A=one"], &body);
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let first = &answer["blocks"][0];
    assert_eq!((&first["status"], &first["stdout"]), (&json!("timed_out"), &json!("one\n")));
    let (code, _, error) = execute(&["-"], "{");
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!((code, &error["code"]), (Some(2), &json!("validation.invalid_request")));
    assert_eq!(execute(&["/nowhere"], "").0, Some(2));
}
