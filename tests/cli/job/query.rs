//! `cofferdam job status`, `result`, `list`, `artifacts` and `cancel` on a store, and usage errors of
//! `cofferdam job`.

use std::fs;

use serde_json::{Value, json};

use super::support::JobDirectory;
use crate::support::cofferdam;

#[test]
fn every_level_has_help_with_examples_and_names_its_options() {
    let target = "--store-dir --server --token-file";
    for (level, options) in [
        ("", ""),
        ("run", "--rootfs"),
        ("status", target),
        ("result", target),
        ("artifacts", "--get --to --store-dir --server --token-file"),
        ("cancel", target),
        ("list", "--status --limit --cursor --store-dir --server --token-file"),
        ("validate", ""),
    ] {
        let done = cofferdam("job").words(level).arg("--help").run().exits(0).quietly();
        let help = done.stdout();
        done.holds(help.contains("Usage: cofferdam job") && help.contains("Examples:\n  "), level);
        for option in options.split_whitespace() {
            done.holds(help.split_whitespace().any(|word| word == option), option);
        }
    }
    cofferdam("schema --help").run().exits(0).quietly();
}

#[test]
fn a_usage_error_is_one_line_that_names_the_option() {
    for (arguments, words) in [
        ("job", "requires a subcommand"),
        ("job frobnicate", "frobnicate"),
        ("job run", "<FILE>"),
        ("job status", "<ID>"),
        ("job list --status done", "--status"),
        ("job list --limit 0", "--limit"),
        ("job list --limit 1001", "--limit"),
        ("job status a --server https://host", "tunnel or proxy"),
        ("job status a --server host", "--server"),
        ("job status a --server http://host --store-dir /x", "--server"),
        ("job status a --token-file /x", "--server"),
        (
            "job status a --server http://127.0.0.1:9 --token-file /no/such/file",
            "--token-file: /no",
        ),
        ("job artifacts a --to /x", "--get"),
        ("job run /dev/null --rootfs /no/such/root", "--rootfs: /no/such/root"),
    ] {
        cofferdam(arguments).run().exits(2).prints("").complains(words);
    }
}

#[test]
fn an_unknown_id_is_not_found_and_a_missing_store_is_an_io_error() {
    let place = JobDirectory::new(&[]);
    for command in ["status", "result", "artifacts", "cancel", "list"] {
        let id = if command == "list" { "" } else { "job_1" };
        let done = place.job(command).words(id).run().exits(1).prints("");
        assert_eq!(done.error()["code"], "run.io_failed", "{command}: there is no store");
    }
    place.run(&place.request(&["true"])).run().exits(0);
    for id in ["job_1", "..", "../runs", ".hidden", "é"] {
        for command in ["status", "result", "artifacts", "cancel"] {
            let error = place.job(command).arg(id).run().exits(1).prints("").error();
            assert_eq!(error["code"], "job.not_found", "{command} {id}");
        }
    }
    fs::write(place.path().join("file"), "").unwrap();
    let file = place.path().join("file");
    let done = cofferdam("job list --store-dir").arg(file).run().exits(1).prints("");
    assert_eq!(done.error()["code"], "run.io_failed");
}

#[test]
fn a_list_has_newest_jobs_first_and_can_be_paged() {
    let place = JobDirectory::new(&[]);
    for (id, command) in [("a", "true"), ("b", "false"), ("c", "true")] {
        let mut request = place.request(&[command]);
        request["job_id"] = json!(id);
        place.run(&request).run();
    }
    let ids = |page: &Value| -> Vec<String> {
        let jobs = page["jobs"].as_array().unwrap();
        jobs.iter().map(|job| job["job_id"].as_str().unwrap().to_owned()).collect()
    };
    let all = place.job("list").run().exits(0).quietly().json();
    assert_eq!(
        (ids(&all), &all["next_cursor"]),
        (vec!["c".into(), "b".into(), "a".into()], &Value::Null)
    );
    let failed = place.job("list --status failed").run().exits(0).json();
    assert_eq!(ids(&failed), ["b"]);
    assert_eq!(failed["jobs"][0]["status"], "failed");
    let first = place.job("list --limit 2").run().exits(0).json();
    assert_eq!(ids(&first), ["c", "b"]);
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = place.job("list --limit 2").arg("--cursor").arg(cursor).run().exits(0).json();
    assert_eq!((ids(&rest), &rest["next_cursor"]), (vec!["a".into()], &Value::Null));
    let error = place.job("list --cursor nonsense").run().exits(2).prints("").error();
    assert_eq!(error["code"], "validation.invalid_request");
    let line = place.job("status b").run().exits(0).quietly().json();
    assert_eq!(line, failed["jobs"][0]);
}

#[test]
fn an_artifact_is_fetched_completely_or_not_at_all() {
    let place = JobDirectory::new(&[]);
    let mut request = place.script("mkdir out; printf abc >'out/a b'; printf x >out/other");
    request["job_id"] = json!("job_1");
    request["policy"]["artifacts"] = json!({"include": ["out/a*"]});
    place.run(&request).run().exits(0);
    let list = place.job("artifacts job_1").run().exits(0).quietly().json();
    let artifact = &list["artifacts"][0];
    assert_eq!((&artifact["path"], &artifact["bytes"]), (&json!("out/a b"), &json!(3)));
    assert_eq!(list["artifacts"].as_array().unwrap().len(), 1);

    let get = |path: &str| place.job("artifacts job_1").arg("--get").arg(path);
    get("out/a b").run().exits(0).quietly().prints("abc");
    let to = place.path().join("copy");
    get("out/a b").arg("--to").arg(&to).run().exits(0).quietly().prints("");
    assert_eq!(fs::read_to_string(&to).unwrap(), "abc");
    for path in ["out/other", "../job_1/result.json", "/etc/passwd", "out"] {
        let error = get(path).run().exits(1).prints("").error();
        assert_eq!(error["code"], "job.not_found", "{path}");
    }
    get("out/a b").words("--to /no/such/dir/file").run().exits(2).complains("--to: /no/such/dir");

    // The file in the store no longer matches the list.
    let kept = artifact["uri"].as_str().unwrap().strip_prefix("file://").unwrap();
    fs::write(kept.replace("%20", " "), "abd").unwrap();
    fs::remove_file(&to).unwrap();
    let error = get("out/a b").arg("--to").arg(&to).run().exits(1).prints("").error();
    assert_eq!(error["code"], "run.io_failed");
    let left = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("copy")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn validate_accepts_a_request_or_gives_the_reason() {
    let place = JobDirectory::new(&[]);
    let validate = |request: &Value| cofferdam("job validate -").fed(request.to_string()).run();
    validate(&place.request(&["anything"])).exits(0).quietly().prints("{\"valid\":true}\n");
    for (pointer, value, code, path) in [
        ("/extra", json!(1), "validation.invalid_request", "extra"),
        ("/job_id", json!("../x"), "validation.invalid_request", "job_id"),
        ("/command/argv", json!("true"), "validation.invalid_request", "command.argv"),
        ("/command/argv", json!([]), "validation.invalid_request", "command.argv"),
        ("/command/cwd", json!("../.."), "validation.path_escape", "command.cwd"),
        ("/workspace/source", json!("git"), "validation.invalid_request", "workspace.source"),
        ("/workspace/path", json!("relative"), "validation.invalid_request", "workspace.path"),
        ("/limits", json!({"timeout_ms": 0}), "validation.invalid_request", "limits.timeout_ms"),
        (
            "/limits",
            json!({"timeout_ms": 1_u64 << 60}),
            "validation.invalid_request",
            "limits.timeout_ms",
        ),
    ] {
        let mut request = place.request(&["true"]);
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        request.pointer_mut(parent).unwrap()[key] = value;
        let error = validate(&request).exits(2).quietly().json();
        assert_eq!((&error["code"], &error["details"]["path"]), (&json!(code), &json!(path)));
    }
    let no_json = cofferdam("job validate -").fed("nonsense").run().exits(2).quietly().json();
    assert_eq!(no_json["code"], "validation.invalid_request");
    let file = place.path().join("request.json");
    fs::write(&file, place.request(&["true"]).to_string()).unwrap();
    cofferdam("job validate").arg(&file).run().exits(0).prints("{\"valid\":true}\n");
    cofferdam("job validate /no/such/file").run().exits(2).prints("").complains("FILE: /no/such");
}
