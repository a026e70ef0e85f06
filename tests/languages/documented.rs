//! Checks `docs/languages.md`: its table, and its instructions for adding a language.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use cofferdam_test_server::service::cofferdam;
use cofferdam_test_server::shipped::{self, Language, read, table};
use cofferdam_test_server::vector::{EXAMPLE, Vector};
use cofferdam_test_server::workspace::Workspace;
use serde_json::Value;

const PAGE: &str = "docs/languages.md";
/// The command of the page that runs one solution of a new language.
const RUN_ONE: &str = "cofferdam run --lang awk ";

/// The cells of the table row for `slug`.
#[track_caller]
fn row(page: &str, slug: &str) -> Vec<String> {
    let start = format!("| {slug} |");
    let line = page.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("{PAGE} has no row for {slug}"));
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn the_table_lists_every_language_with_its_files_and_limits() {
    let page = read(PAGE);
    for (slug, language) in table() {
        let row = row(&page, &slug);
        let files: Vec<&str> = [Some(language.solution.as_str()), language.checker.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        let files = format!("{}/{}", language.folder, files.join(" "));
        let limits = [language.memory_max, language.disk_max]
            .map(|limit| limit.unwrap_or_else(|| "-".to_owned()))
            .join(" ");
        assert_eq!((row[2].as_str(), row[3].as_str()), (files.as_str(), limits.as_str()), "{slug}");
    }
}

/// The text of every fenced block whose info string names a file after its language.
fn files(page: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if let Some((_, file)) = info.split_once(' ') {
            files.push((file.to_owned(), text.join("\n") + "\n"));
        }
    }
    files
}

#[test]
fn a_language_can_be_added_as_documented() {
    let langs = Workspace::empty();
    let files = files(&read(PAGE));
    for (path, text) in &files {
        langs.put(path, text);
    }
    langs.put("awk/check/.gitkeep", "");
    let text = |path: &str| {
        let file = files.iter().find(|(name, _)| name == path);
        &file.unwrap_or_else(|| panic!("{PAGE} has no {path}")).1
    };
    run_one_as_the_page_says(langs.path());
    let service = shipped::setup_with(langs.path(), shipped::rootfs().as_deref()).start();
    let table: BTreeMap<String, Language> = toml::from_str(text("languages.toml")).unwrap();
    let mut vectors: BTreeMap<&str, &str> =
        files.iter().filter_map(|(path, text)| Some((vector_name(path)?, text.as_str()))).collect();
    assert!(!vectors.is_empty(), "{PAGE} has no vector");
    // The default runs without a file.
    vectors.entry(EXAMPLE).or_insert("");
    for (name, file) in vectors {
        let vector = Vector::parse(name, file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let example = |file: &str| text(&format!("awk/example/{file}")).clone();
        let answer = service.post(&vector.request_with("awk", &table["awk"], example));
        vector.holds(answer).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

/// The name of awk's vector that is at `path`.
fn vector_name(path: &str) -> Option<&str> {
    path.strip_prefix("tests/langs/awk/")?.strip_suffix(".toml")
}

/// Runs the page's command with the workspaces in `langs`.
fn run_one_as_the_page_says(langs: &Path) {
    let page = read(PAGE);
    let line = page.lines().map(str::trim).find(|line| line.starts_with(RUN_ONE));
    let words = line.unwrap_or_else(|| panic!("{PAGE} has no {RUN_ONE:?}")).split(' ').skip(1);
    let words = words.map(|word| match word.strip_prefix("langs/") {
        Some(file) => langs.join(file).into_os_string(),
        None => word.into(),
    });
    let mut command = Command::new(cofferdam());
    command.args(words).arg("--langs").arg(langs);
    if let Some(rootfs) = shipped::rootfs() {
        command.arg("--rootfs").arg(rootfs);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"value\":42}"), "{output:?}");
}

#[test]
#[ignore = "needs the toolchains: make test-langs"]
fn the_versions_of_the_table_are_those_of_the_toolchains() {
    let page = read(PAGE);
    let listed = Command::new(cofferdam())
        .args(["langs", "--json", "--langs", "langs", "--rootfs"])
        .arg(shipped::rootfs().expect("SANDBOX_ROOTFS names no root"))
        .current_dir(shipped::repository())
        .output()
        .unwrap();
    let languages: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let promised = shipped::promised();
    assert!(!promised.is_empty(), "LANGUAGES is empty");
    for slug in promised {
        let language = languages.iter().find(|language| language["slug"] == slug.as_str());
        let toolchain = language.and_then(|language| language["toolchain"].as_str());
        let version = &row(&page, &slug)[1];
        assert!(
            toolchain.is_some_and(|line| line.contains(version)),
            "{slug}: {version}, {toolchain:?}"
        );
    }
}
