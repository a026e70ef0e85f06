//! `POST W/collect-outputs`, and `outputs` of `/v1/execute`.

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::exchange::{Reply, ask, command_line, engine_server};
use crate::scene::{EngineScene, bearer, scene, scene_with_tokens};

fn collect(scene: &EngineScene, workspace: &str, spec: &Value) -> Reply {
    scene.post(&format!("{workspace}/collect-outputs"), spec)
}

fn names(manifest: &Value) -> Vec<&str> {
    manifest["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["name"].as_str().unwrap())
        .collect()
}

#[test]
fn outputs_are_collected_with_either_spelling_of_the_keys_and_recorded() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    scene.sh(
        &workspace,
        "printf aaaa >out/a.txt; printf '\\377' >out/b; printf cc >out/c.txt; echo w >work/w",
    );
    let snake = json!({"globs": ["$OUTPUT_DIR/**", " work/* "], "max_files": 3, "max_file_bytes": 3,
                       "max_total_bytes": 100, "save": false, "name_template": "p/", "inline": true});
    let go = json!({"Globs": ["$OUTPUT_DIR/**", " work/* "], "MaxFiles": 3, "MaxFileBytes": 3,
                    "MaxTotalBytes": 100, "Save": false, "NameTemplate": "p/", "Inline": true});
    let both = json!({"Globs": ["none"], "globs": ["$OUTPUT_DIR/**", " work/* "], "MaxFiles": 9,
                      "max_files": 3, "max_file_bytes": null, "MaxFileBytes": 3, "inline": true, "Inline": null});
    let text = |name: &str, content: &str, bytes: u64, cut: bool| {
        json!({"name": name, "mime_type": "text/plain; charset=utf-8", "content": content,
               "encoding": "utf-8", "size_bytes": bytes, "truncated": cut})
    };
    for spec in [snake, go, both] {
        let manifest = collect(&scene, &workspace, &spec);
        assert_eq!(manifest.status, 200, "{}", manifest.json());
        let manifest = manifest.json();
        assert_eq!(names(&manifest), ["out/a.txt", "out/b", "out/c.txt"], "{spec}");
        assert_eq!(manifest["files"][0], text("out/a.txt", "aaa", 4, true), "{spec}");
        assert_eq!(
            (&manifest["files"][1]["content"], &manifest["files"][1]["encoding"]),
            (&json!("/w=="), &json!("base64"))
        );
        assert_eq!((&manifest["limits_hit"], &manifest["omitted"]), (&json!(true), &json!([])));
        let record = scene.get(&format!("{workspace}/metadata")).json()["outputs"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert_eq!(
            (&record["globs"], &record["limits_hit"]),
            (&json!(["$OUTPUT_DIR/**", "work/*"]), &json!(true))
        );
    }
    let bare = collect(&scene, &workspace, &json!({"globs": ["work/w"]})).json();
    assert_eq!(
        bare["files"][0],
        text("work/w", "", 2, false),
        "without `inline` there is no content"
    );
    assert_eq!(bare["limits_hit"], false);
    let total = collect(
        &scene,
        &workspace,
        &json!({"globs": ["out/*"], "max_total_bytes": 5, "inline": true}),
    )
    .json();
    assert_eq!((names(&total), &total["limits_hit"]), (vec!["out/a.txt", "out/b"], &json!(true)));
    for (spec, status, code) in [
        (json!({"globs": ["../x"]}), 422, "validation.path_escape"),
        (json!({"globs": ["["]}), 422, "validation.invalid_request"),
        (json!({"globs": "x"}), 422, "validation.invalid_request"),
        (json!({"glob": []}), 422, "validation.invalid_request"),
        (json!({"max_files": -1}), 422, "validation.invalid_request"),
        (json!({"name_template": "{x}"}), 422, "validation.invalid_request"),
        (json!([]), 422, "validation.invalid_request"),
    ] {
        let reply = collect(&scene, &workspace, &spec);
        assert_eq!(reply.status, status, "{spec}: {}", reply.json());
        reply.assert_error(status, code);
    }
    assert_eq!(
        collect(&scene, &workspace, &json!({})).json(),
        json!({"files": [], "limits_hit": false, "omitted": []})
    );
}

#[test]
fn what_matches_and_is_not_read_is_listed_with_the_reason() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    scene.sh(
        &workspace,
        "echo a >out/a; ln -s a out/link; ln -s /etc/passwd out/leaves; ln -s nowhere out/dangling; mkfifo out/fifo; \
         ln -s /tmp/x out/tmp; echo t >/tmp/x",
    );
    let manifest = collect(&scene, &workspace, &json!({"globs": ["out/*"], "inline": true})).json();
    assert_eq!(names(&manifest), ["out/a"]);
    let omitted = json!([
        {"path": "out/dangling", "reason": "the link leads nowhere"},
        {"path": "out/fifo", "reason": "not a regular file"},
        {"path": "out/leaves", "reason": "the link leads out of the workspace"},
        {"path": "out/tmp", "reason": "the link leads out of the workspace"},
    ]);
    assert_eq!(manifest["omitted"], omitted);
}

#[test]
fn saved_outputs_are_artifacts_of_the_workspaces_session_and_token() {
    let Some(scene) = scene_with_tokens(&[]) else { return };
    let body =
        json!({"exec_id": "job 1", "artifact_session": {"app": "a", "user": "u", "session": "s"}});
    let made = scene.post_with("/v1/workspaces", &bearer(0), &body).json();
    let workspace = format!("/v1/workspaces/{}", made["workspace_id"].as_str().unwrap());
    let script = "mkdir out/d; printf one >out/a.txt; printf two >out/d/b.tar.gz";
    let run = json!({"cmd": "sh", "args": ["-ec", script]});
    assert_eq!(
        scene.post_with(&format!("{workspace}/run"), &bearer(0), &run).json()["exit_code"],
        0
    );
    let collect = |template: &str| {
        let spec = json!({"globs": ["out/**"], "save": true, "name_template": template});
        scene.post_with(&format!("{workspace}/collect-outputs"), &bearer(0), &spec)
    };
    for (template, saved) in [
        ("", [("out/a.txt", 0), ("out/d/b.tar.gz", 0)]),
        ("", [("out/a.txt", 1), ("out/d/b.tar.gz", 1)]),
        ("run/", [("run/out/a.txt", 0), ("run/out/d/b.tar.gz", 0)]),
        ("{exec_id}/{stem}.v{ext}", [("job 1/a.v.txt", 0), ("job 1/b.tar.v.gz", 0)]),
        ("{path}-{name}", [("out/a.txt-a.txt", 0), ("out/d/b.tar.gz-b.tar.gz", 0)]),
        ("same", [("sameout/a.txt", 0), ("sameout/d/b.tar.gz", 0)]),
        ("all{exec_id}", [("alljob 1", 0), ("alljob 1", 1)]),
    ] {
        let manifest = collect(template);
        assert_eq!(manifest.status, 200, "{}", manifest.json());
        let manifest = manifest.json();
        for (file, (name, version)) in manifest["files"].as_array().unwrap().iter().zip(saved) {
            assert_eq!(
                (&file["saved_as"], &file["version"]),
                (&json!(name), &json!(version)),
                "{template}"
            );
            assert_eq!(file["content"], "");
        }
        let metadata =
            ask(&scene.service, "GET", &format!("{workspace}/metadata"), &bearer(0), b"").json();
        let record = metadata["outputs"].as_array().unwrap().last().unwrap();
        let (names, versions): (Vec<_>, Vec<_>) = saved.into_iter().unzip();
        assert_eq!((&record["saved_as"], &record["versions"]), (&json!(names), &json!(versions)));
    }
    let load = |client: usize, query: &str| {
        ask(&scene.service, "GET", &format!("/v1/artifacts/out/a.txt{query}"), &bearer(client), b"")
    };
    let session = "?app=a&user=u&session=s";
    let loaded = load(0, session);
    assert_eq!(
        (loaded.body.as_slice(), loaded.header("content-type")),
        (&b"one"[..], Some("text/plain; charset=utf-8"))
    );
    load(0, "").assert_error(404, "artifact.not_found");
    load(1, session).assert_error(404, "artifact.not_found");
    for template in ["{Name}", "{", "../{name}", "{name}@1"] {
        let refused = collect(template).assert_error(422, "validation.invalid_request");
        assert_eq!(refused["details"]["path"], "name_template", "{template}");
    }
    // A staged input finds what was saved.
    let inputs = json!({"inputs": [{"from": "artifact://out/a.txt@1"}]});
    let staged = scene.post_with(&format!("{workspace}/stage"), &bearer(0), &inputs);
    assert_eq!(staged.json()["inputs"][0]["to"], "work/inputs/a.txt");
}

#[test]
fn a_cut_file_saves_nothing() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"policy": {"max_disk_bytes": 16 << 20}}));
    scene.sh(&workspace, "echo a >out/a; head -c 5000000 /dev/zero >out/z");
    for spec in [
        json!({"globs": ["out/*"], "save": true}),
        json!({"globs": ["out/*"], "save": true, "max_file_bytes": 100_000_000}),
        json!({"globs": ["out/a"], "save": true, "max_file_bytes": 1}),
        json!({"globs": ["out/a"], "Save": true, "max_total_bytes": 1}),
    ] {
        let refused =
            collect(&scene, &workspace, &spec).assert_error(409, "collect.truncated_save");
        assert!(refused["details"]["path"].as_str().unwrap().starts_with("out/"), "{refused}");
        assert_eq!(scene.get("/v1/artifacts").json()["artifacts"], json!([]), "{spec}");
    }
    // A limit of files cuts none.
    let saved =
        collect(&scene, &workspace, &json!({"globs": ["out/*"], "save": true, "max_files": 1}));
    assert_eq!((saved.status, &saved.json()["limits_hit"]), (200, &json!(true)));
    assert_eq!(scene.get("/v1/artifacts").json()["artifacts"][0]["name"], "out/a");
}

#[test]
fn a_full_disk_does_not_keep_outputs_from_being_collected() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"policy": {"max_disk_bytes": 1 << 20}}));
    scene.sh(&workspace, "echo a >out/a; cat /dev/zero >work/fill 2>/dev/null || true");
    let spec = json!({"globs": ["out/*"], "save": true, "inline": true});
    let saved = collect(&scene, &workspace, &spec);
    assert_eq!((saved.status, &saved.json()["files"][0]["content"]), (200, &json!("a\n")));
}

#[test]
fn executing_code_collects_and_saves_what_it_made() {
    let Some(scene) = scene(&[]) else { return };
    let code = "mkdir -p ../out; printf one >../out/a.txt";
    let block = json!({"code": code, "language": "sh"});
    let execute = |outputs: Value, code: &Value| {
        let body = json!({"code_blocks": [code], "execution_id": "e", "outputs": outputs});
        scene.post("/v1/execute", &body)
    };
    let outputs = json!({"globs": ["out/*"], "Save": true, "name_template": "{exec_id}/{name}"});
    let answer = execute(outputs, &block);
    assert_eq!(answer.status, 200, "{}", answer.json());
    let file = answer.json()["output_files"][0].clone();
    assert_eq!((&file["name"], &file["content"]), (&json!("out/a.txt"), &json!("one")));
    assert_eq!((&file["saved_as"], &file["version"]), (&json!("e/a.txt"), &json!(0)));
    assert_eq!(scene.get("/v1/artifacts/e/a.txt").body, b"one");
    let big =
        json!({"code": "mkdir -p ../out; head -c 5000000 /dev/zero >../out/z", "language": "sh"});
    let outputs = json!({"globs": ["out/*"], "save": true});
    execute(outputs, &big).assert_error(409, "collect.truncated_save");
    scene.get("/v1/artifacts/out/z").assert_error(404, "artifact.not_found");
    for (outputs, path) in [
        (json!({"globs": ["["]}), "outputs.globs[0]"),
        (json!({"name_template": "{x}"}), "outputs.name_template"),
        (json!({"x": 1}), "outputs.x"),
    ] {
        let refused = execute(outputs, &block).assert_error(422, "validation.invalid_request");
        assert_eq!(refused["details"]["path"], path);
    }
}

#[test]
fn outputs_that_are_saved_without_a_server_are_in_its_store() {
    let Some(_) = scene(&[]) else { return };
    let directory = tempdir().unwrap();
    let store = directory.path().join("engine");
    let block = json!({"code": "mkdir -p ../out; printf one >../out/a.txt", "language": "sh"});
    let body = json!({"code_blocks": [block], "outputs": {"globs": ["out/*"], "save": true}});
    let variables = [("ENGINE_STORE_DIR", store.to_str().unwrap())];
    let output = command_line(&["execute", "-"], body.to_string().as_bytes(), &variables);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["output_files"][0]["saved_as"], "out/a.txt");
    let service = engine_server(&store).env("JOBS", "off").start();
    assert_eq!(ask(&service, "GET", "/v1/artifacts/out/a.txt", "", b"").body, b"one");
}

#[test]
fn patterns_below_the_workspace_may_be_absolute_and_wrong_ones_are_named() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"path": "/srv/w"}));
    scene.sh(&workspace, "echo a >out/a.txt");
    let patterns = |patterns: Value| {
        scene.post(&format!("{workspace}/collect"), &json!({ "patterns": patterns }))
    };
    for pattern in ["/srv/w/out/*", "/srv/w//out/a.txt", "out/*"] {
        assert_eq!(names(&patterns(json!(["", pattern])).json()), ["out/a.txt"], "{pattern}");
        let spec = json!({ "globs": [pattern] });
        assert_eq!(names(&collect(&scene, &workspace, &spec).json()), ["out/a.txt"], "{pattern}");
    }
    for pattern in ["/workspace/out/*", "/srv/w/../x", "/srv/wx", "/tmp/*"] {
        let error = patterns(json!(["", pattern])).assert_error(422, "validation.path_escape");
        assert_eq!(error["details"]["path"], "patterns[1]", "{pattern}");
    }
    let id = workspace.rsplit('/').next().unwrap();
    let execute = |outputs: Value| {
        let body = json!({"code_blocks": [], "workspace_id": id, "outputs": outputs});
        scene.post("/v1/execute", &body)
    };
    let executed = execute(json!({"globs": ["/srv/w/out/*"], "save": true})).json();
    assert_eq!(executed["output_files"][0]["name"], "out/a.txt", "{executed}");
    let shown = scene.post("/v1/helpers/result_string", &executed).json();
    assert!(shown["text"].as_str().unwrap().ends_with("out/a.txt"), "{shown}");
    for (outputs, code, path) in [
        (json!({"globs": ["/tmp/*"]}), "validation.path_escape", "outputs.globs[0]"),
        (json!({"globs": ["a", "["]}), "validation.invalid_request", "outputs.globs[1]"),
        (json!({"Globz": []}), "validation.invalid_request", "outputs.Globz"),
    ] {
        assert_eq!(execute(outputs).assert_error(422, code)["details"]["path"], path);
    }
    let unknown = collect(&scene, &workspace, &json!({"globs": [], "max": 1}));
    let error = unknown.assert_error(422, "validation.invalid_request");
    assert_eq!(error["details"]["path"], "max");
}
