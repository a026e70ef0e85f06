//! `cofferdam artifact`.

use std::fs;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::exchange::{TOKENS, command_line, engine_server, token_file};

#[test]
fn an_artifact_is_saved_loaded_listed_and_removed() {
    let directory = tempdir().unwrap();
    let (_, token) = TOKENS[0];
    let setup = engine_server(&directory.path().join("engine")).env("AUTH_TOKEN", token);
    let service = setup.start();
    let token = token_file(directory.path(), token);
    let url = format!("http://{}", service.address);
    let file = directory.path().join("file");
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    fs::write(&file, &bytes).unwrap();
    let (token, file) = (token.to_str().unwrap(), file.to_str().unwrap());
    let run = |words: &[&str], stdin: &[u8]| {
        let words = [&["artifact"], words, &["--token-file", token]].concat();
        let output = command_line(&words, stdin, &[("COFFERDAM_SERVER", &url)]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {stderr}");
        output.stdout
    };
    let json_of = |words: &[&str], stdin: &[u8]| -> Value {
        let line = String::from_utf8(run(words, stdin)).unwrap();
        assert_eq!(line.lines().count(), 1, "{line}");
        serde_json::from_str(&line).unwrap()
    };
    let name = "dir/a b..".trim_end_matches('.');
    let saved = json_of(&["save", name, file, "--mime-type", "text/plain"], b"");
    assert_eq!((&saved["version"], &saved["size_bytes"]), (&json!(0), &json!(300_000)));
    assert_eq!(json_of(&["save", name, "-"], b"from stdin")["version"], 1);
    assert_eq!(run(&["load", name], b""), b"from stdin");
    assert_eq!(run(&["load", &format!("{name}@0")], b""), bytes);
    let listed = json_of(&["list", "--limit", "5"], b"");
    let artifacts = json!([{"name": name, "latest": 1, "versions": 2}]);
    assert_eq!(listed, json!({"artifacts": artifacts, "next_cursor": null}));
    assert_eq!(json_of(&["list", "--app", "x"], b"")["artifacts"], json!([]));
    assert_eq!(json_of(&["save", "s", "-", "--session", "1&2"], b"x")["version"], 0);
    assert_eq!(run(&["load", "s", "--session", "1&2"], b""), b"x");
    assert_eq!(json_of(&["versions", name], b""), json!({"versions": [0, 1]}));
    assert_eq!(json_of(&["rm", name], b""), json!({}));
    assert_eq!(json_of(&["rm", name], b""), json!({}));
}

#[test]
fn errors_are_one_line_of_json_and_the_exit_code_tells_whose_fault_it_is() {
    let directory = tempdir().unwrap();
    let service = engine_server(directory.path()).start();
    let url = format!("http://{}", service.address);
    let fails = |words: &[&str], variables: &[(&str, &str)]| {
        let output = command_line(&[&["artifact"], words].concat(), b"", variables);
        assert_eq!(output.stdout, b"", "{words:?}");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let at_service = [("COFFERDAM_SERVER", url.as_str())];
    for (words, exit_code, error_code) in [
        (&["load", "missing"][..], 1, "artifact.not_found"),
        (&["versions", "missing"], 1, "artifact.not_found"),
        (&["save", "x@1", "/dev/stdin"], 2, ""),
        (&["save", "x@1", "-"], 2, "validation.invalid_request"),
        (&["load", "@1"], 2, "validation.invalid_request"),
        (&["load", "a/../b"], 2, "validation.invalid_request"),
        (&["list", "--limit", "0"], 2, "validation.invalid_request"),
        (&["list", "--cursor", "!"], 2, "validation.invalid_request"),
    ] {
        let (code, stderr) = fails(words, &at_service);
        assert_eq!(code, exit_code, "{words:?}: {stderr}");
        if !error_code.is_empty() {
            let error: Value = serde_json::from_str(&stderr).unwrap();
            assert_eq!(error["code"], error_code, "{words:?}");
        }
    }
    let (code, stderr) = fails(&["list"], &[]);
    assert!(
        code == 2 && stderr.contains("--server") && stderr.contains("COFFERDAM_SERVER"),
        "{stderr}"
    );
    let (code, stderr) = fails(&["list"], &[("COFFERDAM_SERVER", "https://h")]);
    assert!(code == 2 && stderr.contains("COFFERDAM_SERVER"), "{stderr}");
    let (code, stderr) = fails(&["list"], &[("COFFERDAM_SERVER", "http://127.0.0.1:1")]);
    assert!(code == 1 && stderr.contains("is the service running?"), "{stderr}");
    let missing = directory.path().join("missing");
    let (code, stderr) = fails(&["save", "a", missing.to_str().unwrap()], &at_service);
    assert!(code == 2 && stderr.contains("missing"), "{stderr}");
}
