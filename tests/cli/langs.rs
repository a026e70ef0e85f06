//! `cofferdam langs`: the list of languages.

use serde_json::Value;

use crate::support::{cofferdam, has_keys_in_order, langs};

/// How many languages `langs/` has.
const LANGUAGES: usize = 17;

#[test]
fn json_lists_all_languages_sorted_with_reasons_for_missing_ones() {
    let done = cofferdam("langs --json --langs").arg(langs()).run().exits(0).quietly();
    let text = done.stdout();
    has_keys_in_order(
        &text,
        &[
            "slug",
            "dir",
            "files",
            "checker_required",
            "available",
            "reason",
            "toolchain",
            "command",
        ],
    );
    let list: Vec<Value> = serde_json::from_str(&text).unwrap();
    let slugs: Vec<_> = list.iter().map(|language| language["slug"].as_str().unwrap()).collect();
    assert_eq!(slugs.len(), LANGUAGES);
    assert!(slugs.is_sorted(), "{slugs:?}");
    for language in &list {
        assert_eq!(language.as_object().unwrap().len(), 8, "{language}");
        let available = language["available"].as_bool().unwrap();
        assert_eq!(language["reason"].is_null(), available, "{language}");
        assert_eq!(language["toolchain"].is_string(), available, "{language}");
        assert_eq!(language["command"].is_string(), available, "{language}");
        let names = language["files"].as_array().unwrap().len();
        assert_eq!(names == 2, language["checker_required"].as_bool().unwrap(), "{language}");
    }
    let python = list.iter().find(|language| language["slug"] == "python").unwrap();
    assert_eq!(python["files"], serde_json::json!(["solution.py"]));
    assert!(
        python["toolchain"].as_str().is_some_and(|line| line.starts_with("Python 3")),
        "{python}"
    );
}

#[test]
fn text_has_one_line_for_each_language() {
    let done = cofferdam("langs --langs").arg(langs()).run().exits(0).quietly();
    let text = done.stdout();
    done.holds(text.lines().count() == LANGUAGES, "a line for each language");
    let available = || text.lines().filter(|line| line.contains(" available "));
    done.holds(available().all(|line| line.len() <= 100 && !line.contains(';')), "short lines");
    let words = |slug: &str| {
        let line =
            text.lines().find(|line| line.split(' ').next() == Some(slug)).unwrap_or_default();
        line.split_whitespace().nth(1).unwrap_or_default().to_owned()
    };
    done.holds(words("python") == "available", "python available");
}

#[test]
fn a_missing_makefile_is_given_as_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let done = cofferdam("langs --json --workspace .").within(directory.path()).run().exits(0);
    let list: Vec<Value> = serde_json::from_str(&done.stdout()).unwrap();
    for language in list {
        assert!(language["reason"].as_str().unwrap().starts_with("no Makefile in "), "{language}");
    }
}

#[test]
fn a_missing_toolchain_is_given_as_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("Makefile"), "test:\n\techo\n").unwrap();
    let done = cofferdam("langs --json --workspace .").within(directory.path()).run().exits(0);
    let list: Vec<Value> = serde_json::from_str(&done.stdout()).unwrap();
    for reason in list.iter().filter_map(|language| language["reason"].as_str()) {
        assert!(reason.ends_with(" installed where runs can see it"), "{reason}");
    }
}
