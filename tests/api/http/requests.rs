//! Rows 8 to 19 of the contract: what a request may contain, and how an invalid one is answered.

use std::time::{Duration, Instant};

use cofferdam_test_server::client::{post, solution, solution_within};
use cofferdam_test_server::service::Setup;
use cofferdam_test_server::workspace::{RUN_SOLUTION, Workspace};
use serde_json::{Value, json};

const VALID: &str = r#"{"lang_slug":"python","solution_text":"echo hi"}"#;
const CHECKER_REQUIRED: &str = r#"{"error":"checker_text is required"}"#;
const INVALID_TIMEOUT: &str = r#"{"error":"invalid timeout"}"#;

/// The valid request with `key` changed.
fn with(key: &str, value: Value) -> Value {
    let mut body = solution("echo hi");
    body[key] = value;
    body
}

#[test]
fn a_body_that_is_not_one_json_object_is_a_400_that_names_the_error() {
    let service = Setup::shell().start();
    let table: [(&[u8], &str); 16] = [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"sleep 5", "JSON"),
        (b"{", "EOF"),
        (b"[]", "object"),
        (b"\"text\"", "object"),
        (b"null", "object"),
        (b"\xEF\xBB\xBF{\"lang_slug\":\"python\",\"solution_text\":\"\"}", "byte order mark"),
        (b"{\"lang_slug\":\"python\",\"solution_text\":\"\"} {}", "trailing"),
        (b"{\"lang_slug\":\"python\",\"solution_text\":\"\"}\0", "trailing"),
        (b"{\"lang_slug\":\"python\",\"solution_text\":\"\xFF\"}", "UTF-8"),
        (br#"{"lang_slug":"python","solution_text":"\ud800"}"#, "JSON"),
        (br#"{"lang_slug":"python","solution_text":"\udc00\ud800"}"#, "JSON"),
        (br#"{"lang_slug":"python","solution_text":"","x":["\ud800"]}"#, "lone surrogate"),
        (br#"{"lang_slug":"python","solution_text":"","lang_slug":"ruby"}"#, "duplicate key"),
        (br#"{"lang_slug":"python","solution_text":"","x":1,"x":2}"#, "duplicate key"),
    ];
    let mut client = service.connect();
    for (body, fault) in table {
        client.ask(post("", body)).assert_error_naming(400, fault);
    }
    assert_eq!(client.ask(post("", VALID)).stdout(), "hi\n");
}

#[test]
fn a_field_of_the_wrong_type_is_a_400_that_names_it() {
    let service = Setup::shell().start();
    let others = [json!(5), json!(-1.5), json!(true), json!([]), json!(["a"]), json!({})];
    for field in ["solution_text", "lang_slug"] {
        let mut missing = solution("true");
        missing.as_object_mut().unwrap().remove(field);
        service.post(&missing).assert_error_naming(400, field);
        service.post(&with(field, Value::Null)).assert_error_naming(400, field);
        for value in &others {
            service.post(&with(field, value.clone())).assert_error_naming(400, field);
        }
    }
    for field in ["asserts", "timeout", "checker_text"] {
        for value in &others {
            service.post(&with(field, value.clone())).assert_error_naming(400, field);
        }
    }
}

#[test]
fn unknown_keys_are_ignored_and_null_means_absent() {
    let workspace = Workspace::shell().with("check/asserts.json", "its own");
    let service = Setup::of(workspace).start();
    for (key, value) in [
        ("solutions", json!([{ "lang": "js" }])),
        ("Timeout", json!(5)),
        ("", json!(null)),
        ("asserts", json!(null)),
        ("timeout", json!(null)),
        ("checker_text", json!(null)),
    ] {
        let mut body = with(key, value);
        body["solution_text"] = json!("cat check/asserts.json; ulimit -t; ls check");
        let expected = "its own30\nasserts.json\nsolution.py\n";
        assert_eq!(service.post(&body).stdout(), expected, "{key}");
    }
}

#[test]
fn a_slug_must_be_spelled_exactly_as_in_the_table() {
    let service = Setup::shell().start();
    for slug in ["", "Python", "PYTHON", "python ", "javascript", "perl", "../python", "check"] {
        let answer = service.post(&with("lang_slug", json!(slug)));
        answer.assert_json(400, r#"{"error":"unsupported lang_slug"}"#);
    }
}

#[test]
fn every_slug_writes_the_files_of_the_table() {
    let workspace = Workspace::running(&["for file in */*; do echo $$file; cat $$file; done"]);
    let service = Setup::of(workspace).start();
    for (slug, solution, checker) in [
        ("clojure", "check/solution.clj", None),
        ("cpp", "check/solution.cpp", Some("check/checker.cpp")),
        ("csharp", "check/Solution.cs", Some("check/Checker.cs")),
        ("dart", "lib/solution.dart", Some("lib/checker.dart")),
        ("elixir", "check/solution.exs", None),
        ("golang", "check/solution.go", Some("check/checker.go")),
        ("haskell", "check/Solution.hs", Some("check/Checker.hs")),
        ("java", "check/Solution.java", Some("check/Checker.java")),
        ("js", "check/solution.js", None),
        ("kotlin", "check/solution.kt", Some("check/checker.kt")),
        ("php", "check/solution.php", None),
        ("python", "check/solution.py", None),
        ("ruby", "check/solution.rb", None),
        ("rust", "check/solution.rs", Some("check/checker.rs")),
        ("swift", "check/solution.swift", Some("check/checker.swift")),
        ("ts", "check/solution.js", None),
        ("zig", "check/solution.zig", Some("check/checker.zig")),
    ] {
        let folder = &solution[..solution.find('/').unwrap()];
        let body = json!({
            "lang_slug": slug,
            "solution_text": "the solution\n",
            "checker_text": "the checker\n",
            "asserts": "the asserts\n",
        });
        let mut files = vec![
            format!("{folder}/asserts.json\nthe asserts\n"),
            format!("{solution}\nthe solution\n"),
        ];
        files.extend(checker.map(|checker| format!("{checker}\nthe checker\n")));
        files.sort_by_key(|file| file.to_lowercase());
        let mut printed: Vec<String> = Vec::new();
        for line in service.post(&body).stdout().lines() {
            match printed.last_mut() {
                Some(file) if !line.contains('/') => file.push_str(&format!("{line}\n")),
                _ => printed.push(format!("{line}\n")),
            }
        }
        printed.sort_by_key(|file| file.to_lowercase());
        assert_eq!(printed, files, "{slug}");

        let mut without = body.clone();
        without.as_object_mut().unwrap().remove("checker_text");
        match checker {
            Some(_) => service.post(&without).assert_json(400, CHECKER_REQUIRED),
            None => assert_eq!(service.post(&without).finished().exit_code, Some(0), "{slug}"),
        }
    }
}

#[test]
fn an_empty_checker_is_a_checker() {
    let workspace = Workspace::running(&["wc -c check/*.cpp"]);
    let service = Setup::of(workspace).start();
    let body = json!({ "lang_slug": "cpp", "solution_text": "", "checker_text": "" });
    let stdout = service.post(&body).stdout();
    let words: Vec<&str> = stdout.split_whitespace().collect();
    assert_eq!(words, ["0", "check/checker.cpp", "0", "check/solution.cpp", "0", "total"]);
}

#[test]
fn sent_asserts_replace_those_of_the_workspace() {
    let workspace = Workspace::shell().with("check/asserts.json", "its own");
    let service = Setup::of(workspace).start();
    let ask = |asserts: Option<&str>| {
        let mut body = solution("cat check/asserts.json");
        if let Some(asserts) = asserts {
            body["asserts"] = json!(asserts);
        }
        service.post(&body).stdout()
    };
    assert_eq!(ask(None), "its own");
    assert_eq!(ask(Some("{\"arguments\":[]}")), "{\"arguments\":[]}");
    assert_eq!(ask(Some("")), "");
    assert_eq!(ask(None), "its own");
}

#[test]
fn texts_are_written_unchanged() {
    let service = Setup::of(Workspace::running(&["cat check/solution.py"])).start();
    for text in ["", "\0", "\r\n\t\u{1b}", "\u{feff}é日😀", "\u{7f}\u{2028}", "\"\\/"] {
        assert_eq!(service.run(text).stdout(), text);
    }
}

#[test]
fn a_timeout_sets_the_cpu_seconds_rounded_up() {
    let service = Setup::shell().start();
    for (timeout, seconds) in
        [("1000ms", "1"), ("1s", "1"), ("1m", "60"), ("1001ms", "2"), ("007s", "7"), ("5m", "300")]
    {
        let answer = service.post(&solution_within(timeout, "ulimit -t"));
        assert_eq!(answer.stdout().trim(), seconds, "{timeout}");
    }
    assert_eq!(service.run("ulimit -t").stdout().trim(), "30");
}

#[test]
fn a_timeout_above_the_operators_maximum_is_refused() {
    let service = Setup::shell().start();
    service.post(&solution_within("300001ms", "true")).assert_error_naming(400, "timeout");
    drop(service);
    let service = Setup::shell().env("RUN_TIMEOUT_MAX", "2s").start();
    assert_eq!(service.post(&solution_within("2s", "echo hi")).stdout(), "hi\n");
    service.post(&solution_within("2001ms", "true")).assert_error_naming(400, "timeout");
    service.post(&solution_within("1m", "true")).assert_error_naming(400, "timeout");
}

#[test]
fn a_timeout_outside_the_grammar_is_refused() {
    let service = Setup::shell().start();
    for timeout in [
        "",
        "5",
        "s",
        "ms",
        "m",
        "1h",
        "1.5s",
        "-1s",
        "+5s",
        " 5s",
        "5s ",
        "5 s",
        "1S",
        "1MS",
        "1us",
        "1_0s",
        "0x1s",
        "٣s",
        "5s\0",
        "18446744073709551615s",
        "18446744073709551616ms",
        "307445734561825861m",
        "99999999999999999999999999999999s",
    ] {
        let answer = service.post(&solution_within(timeout, "true"));
        answer.assert_json(400, INVALID_TIMEOUT);
    }
    assert_eq!(service.run("echo hi").stdout(), "hi\n");
}

#[test]
fn a_timeout_of_zero_ends_the_run_at_once() {
    let service = Setup::shell().start();
    for timeout in ["0s", "0ms", "0m"] {
        let start = Instant::now();
        let answer = service.post(&solution_within(timeout, "sleep 60"));
        assert_eq!(answer.finished().exit_code, None, "{timeout}");
        assert_eq!(answer.header("x-run-outcome"), Some("timed_out"));
        assert!(start.elapsed() < Duration::from_secs(5), "{timeout}");
    }
}

#[test]
fn every_content_encoding_except_identity_is_refused() {
    let service = Setup::of(Workspace::running(&[RUN_SOLUTION])).start();
    for coding in
        ["gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "identity, gzip", "gzip,identity", "no"]
    {
        let answer = service.ask(post(&format!("content-encoding: {coding}\r\n"), VALID));
        answer.assert_json(415, r#"{"error":"content-encoding not supported"}"#);
    }
    for coding in ["identity", "Identity", "IDENTITY"] {
        let answer = service.ask(post(&format!("content-encoding: {coding}\r\n"), VALID));
        assert_eq!(answer.stdout(), "hi\n");
    }
}
