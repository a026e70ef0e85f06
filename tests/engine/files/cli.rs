//! `cofferdam workspace stage-dir`, `stage` and `collect`.

use std::fs;

use serde_json::{Value, json};
use tempfile::tempdir;

use super::staging::{HostPlace, save};
use crate::exchange::command_line;
use crate::scene::scene;

#[test]
fn directories_inputs_and_outputs_go_through_the_command_line() {
    let host = HostPlace::new();
    let Some(scene) = scene(&host.roots()) else { return };
    let workspace = scene.create(&json!({}));
    let id = workspace.rsplit('/').next().unwrap();
    let url = format!("http://{}", scene.service.address);
    let call = |words: &[&str], stdin: &[u8]| {
        let words = [&["workspace", words[0], id], &words[1..]].concat();
        let output = command_line(&words, stdin, &[("COFFERDAM_SERVER", &url)]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        let text = if output.status.success() {
            String::from_utf8(output.stdout).unwrap()
        } else {
            stderr
        };
        assert_eq!(text.lines().count(), 1, "{text}");
        (output.status.code().unwrap(), serde_json::from_str::<Value>(&text).unwrap())
    };
    let local = tempdir().unwrap();
    fs::create_dir_all(local.path().join("a/b")).unwrap();
    fs::write(local.path().join("a/b/x.txt"), "one").unwrap();
    fs::write(local.path().join("a/c.txt"), "two").unwrap();
    let known = "d5eed389030d3cf3ca8173debfe3cf5ff3d1b861c1c6a7367b907e082b67f243";
    let here = local.path().to_str().unwrap();
    let (code, staged) =
        call(&["stage-dir", here, "skills/t", "--read-only", "--allow-mount"], b"");
    let expected = json!({"to": "skills/t", "digest": known, "files": 2, "mount_used": true});
    assert_eq!((code, staged), (0, expected));
    assert_eq!(
        scene.sh(&workspace, "cat skills/t/a/c.txt; stat -c %a skills/t/a/c.txt"),
        "two444\n"
    );
    let (code, staged) = call(&["stage-dir", &host.input("tree"), "skills/h"], b"");
    assert_eq!((code, &staged["files"]), (0, &json!(2)));
    let (code, error) = call(&["stage-dir", "host:///etc", "skills/h"], b"");
    assert_eq!((code, &error["code"]), (1, &json!("input.host_denied")));
    let (code, error) = call(&["stage-dir", "--digest", known, "skills/d"], b"");
    assert_eq!((code, &error["code"]), (1, &json!("skill.not_found")));
    save(&scene, "data.csv", b"1,2");
    let (code, staged) =
        call(&["stage", "-"], br#"[{"from": "artifact://data.csv", "pin": true}]"#);
    assert_eq!((code, &staged["inputs"][0]["to"]), (0, &json!("work/inputs/data.csv")));
    let inputs = local.path().join("inputs.json");
    fs::write(&inputs, r#"{"inputs": [{"from": "ftp://x"}]}"#).unwrap();
    let (code, error) = call(&["stage", inputs.to_str().unwrap()], b"");
    assert_eq!((code, &error["code"]), (2, &json!("input.unsupported")));
    scene.sh(&workspace, "printf out >out/o.txt");
    let spec = br#"{"Globs": ["out/**"], "save": true, "inline": true}"#;
    let (code, manifest) = call(&["collect", "--spec", "-"], spec);
    let file = &manifest["files"][0];
    assert_eq!(
        (code, &file["content"], &file["saved_as"]),
        (0, &json!("out"), &json!("out/o.txt"))
    );
    let (code, files) = call(&["collect", "work/inputs/*"], b"");
    assert_eq!((code, &files["files"][0]["content"]), (0, &json!("1,2")));
}
