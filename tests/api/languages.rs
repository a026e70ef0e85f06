//! The vectors of `tests/langs`, through one server with the shipped workspaces.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::client::Finished;
use crate::server::host::alone;
use crate::server::service::{Service, Setup};

/// Vectors run at the same time.
const CONCURRENCY: usize = 4;
/// Languages that a host which calls itself complete has to have.
const REQUIRED: [&str; 6] = ["cpp", "java", "js", "php", "python", "ruby"];

/// One file of `tests/langs`; its README tells the keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    solution: String,
    checker: Option<String>,
    asserts: Option<String>,
    timeout: Option<String>,
    expect: Expectation,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    exit_code: Option<u8>,
    stderr_contains: Option<String>,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    #[serde(rename = "type")]
    kind: String,
    value: Option<String>,
    value_contains: Option<String>,
}

#[test]
fn every_available_language_gives_what_its_vectors_say() {
    let _alone = alone();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let service = Setup::inside(root)
        .arg("--langs")
        .arg(root.join("langs"))
        .env("RUN_CONCURRENCY", CONCURRENCY.to_string())
        .start();
    let vectors = read_vectors(&root.join("tests/langs"));
    let available: BTreeSet<&str> =
        vectors.keys().map(String::as_str).filter(|slug| is_available(&service, slug)).collect();
    println!("languages run: {available:?}");
    if std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1") {
        let missing: Vec<_> = REQUIRED.iter().filter(|slug| !available.contains(*slug)).collect();
        assert!(missing.is_empty(), "not available: {missing:?}");
    }
    assert!(!available.is_empty(), "no language at all");

    let to_run = vectors.iter().filter(|(slug, _)| available.contains(slug.as_str()));
    let queue: Vec<(&str, &PathBuf)> = to_run
        .flat_map(|(slug, files)| files.iter().map(move |file| (slug.as_str(), file)))
        .collect();
    let failures = run_all(&service, queue);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The files of each language, by slug.
fn read_vectors(directory: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let entries = |path: &Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let slugs = entries(directory).filter(|path| path.is_dir());
    slugs
        .map(|slug| {
            let mut files: Vec<PathBuf> =
                entries(&slug).filter(|file| file.extension() == Some("toml".as_ref())).collect();
            files.sort();
            (slug.file_name().unwrap().to_str().unwrap().to_owned(), files)
        })
        .collect()
}

/// Whether a run of no time at all is let in.
fn is_available(service: &Service, slug: &str) -> bool {
    let body =
        json!({ "lang_slug": slug, "solution_text": "", "checker_text": "", "timeout": "0s" });
    match service.post(&body).status {
        200 => true,
        503 => false,
        status => panic!("{slug}: {status}"),
    }
}

/// Runs the vectors some at a time and tells which did not hold.
fn run_all(service: &Service, queue: Vec<(&str, &PathBuf)>) -> Vec<String> {
    let (queue, failures) = (Mutex::new(queue), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..CONCURRENCY {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().pop();
                    let Some((slug, file)) = next else { return };
                    if let Err(why) = run_one(service, slug, file) {
                        failures.lock().unwrap().push(format!("{}: {why}", file.display()));
                    }
                }
            });
        }
    });
    failures.into_inner().unwrap()
}

fn run_one(service: &Service, slug: &str, file: &Path) -> Result<(), String> {
    let vector: Vector = toml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let mut body = json!({ "lang_slug": slug, "solution_text": vector.solution });
    let optional = [
        ("checker_text", &vector.checker),
        ("asserts", &vector.asserts),
        ("timeout", &vector.timeout),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            body[key] = json!(value);
        }
    }
    let answer = service.post(&body);
    if answer.status != 200 {
        return Err(format!("{answer:?}"));
    }
    holds(&vector.expect, &answer.finished())
}

/// Whether a run gave what was expected; otherwise what differs.
fn holds(expected: &Expectation, got: &Finished) -> Result<(), String> {
    let fail = |what: String| Err(format!("{what}: {got:?}"));
    if got.exit_code != expected.exit_code {
        return fail(format!("want exit code {:?}", expected.exit_code));
    }
    if let Some(words) = &expected.stderr_contains
        && !got.stderr.contains(words)
    {
        return fail(format!("want {words:?} on stderr"));
    }
    if expected.exit_code.is_none() {
        return Ok(());
    }
    let Some(items) = items_of(&got.stdout) else { return fail("no JSON".to_owned()) };
    if items.len() != expected.items.len() {
        return fail(format!("want {} items", expected.items.len()));
    }
    for (item, expected) in items.iter().zip(&expected.items) {
        if item["type"] != json!(expected.kind) {
            return fail(format!("want type {:?}", expected.kind));
        }
        if let Some(value) = &expected.value
            && !is_value(&item["value"], value, &got.stdout)
        {
            return fail(format!("want value {value}"));
        }
        if let Some(words) = &expected.value_contains
            && !item["value"].as_str().is_some_and(|value| value.contains(words))
        {
            return fail(format!("want {words:?} in a value"));
        }
    }
    Ok(())
}

/// One array, or one object a line; nothing for nothing.
fn items_of(stdout: &str) -> Option<Vec<Value>> {
    if let Ok(Value::Array(items)) = serde_json::from_str(stdout) {
        return Some(items);
    }
    let lines = stdout.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).ok()).collect()
}

/// An integer beyond 64 bits would be compared as a rounded one, so its digits
/// have to stand in the text as well.
fn is_value(got: &Value, expected: &str, stdout: &str) -> bool {
    let is_long = expected.len() > 19 && expected.bytes().all(|byte| byte.is_ascii_digit());
    serde_json::from_str::<Value>(expected).is_ok_and(|value| value == *got)
        && (!is_long || stdout.contains(expected))
}
