//! The vectors of `tests/langs`, through one server with the shipped workspaces.

use std::collections::{BTreeSet, VecDeque};
use std::fs;

use cofferdam_test_server::shipped::{self, read, repository, table};
use cofferdam_test_server::vector::Vector;

use crate::queue::{Case, run_all};

/// The guarantees for which every language has a vector.
const OF_EVERY_LANGUAGE: [&str; 8] = [
    "all_types",
    "good",
    "memory_limit",
    "prints",
    "runtime_error",
    "syntax_error",
    "timeout",
    "wrong",
];

#[test]
fn every_available_language_passes_its_vectors() {
    let service = shipped::setup().start();
    let languages = shipped::available(&service);
    let cases = languages.iter().flat_map(|(slug, language)| {
        names(slug).into_iter().map(move |name| Case { slug, language, name })
    });
    let (cases, left): (VecDeque<Case<'_>>, VecDeque<_>) = cases.partition(|case| {
        shipped::rootfs().is_some() || !Vector::read(case.slug, &case.name).needs_recipe()
    });
    for Case { slug, name, .. } in left {
        println!("{slug}/{name} needs more than a host has: make test-langs");
    }
    run_all(&service, cases);
}

#[test]
fn ts_and_js_share_a_harness() {
    for file in ["checker.js", "callable.js"] {
        let [ts, js] = ["ts", "js"].map(|slug| read(&format!("langs/{slug}/{file}")));
        assert!(ts == js, "{file} differs between ts and js");
    }
}

#[test]
fn every_language_has_a_vector_for_every_guarantee() {
    for (slug, _) in table() {
        let names = names(&slug);
        let lacking: Vec<_> =
            OF_EVERY_LANGUAGE.iter().filter(|name| !names.contains(**name)).collect();
        assert!(lacking.is_empty(), "{slug} has no vector {lacking:?}");
        for name in names {
            Vector::read(&slug, &name);
        }
    }
}

/// The names of a language's vectors.
pub fn names(slug: &str) -> BTreeSet<String> {
    let directory = repository().join("tests/langs").join(slug);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{slug}: {error}"));
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned())).collect()
}
