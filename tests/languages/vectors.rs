//! The vectors of `tests/langs`, through one server with the shipped workspaces.

use std::collections::VecDeque;

use cofferdam_test_server::shipped::{self, read, table};
use cofferdam_test_server::vector::{EXAMPLE, Vector, defaults, names};

use crate::queue::{Case, run_all};

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
fn every_language_has_a_vector_for_every_default() {
    let needed = defaults();
    assert!(needed.contains(EXAMPLE), "{needed:?}");
    for (slug, _) in table() {
        let names = names(&slug);
        let lacking: Vec<_> = needed.difference(&names).collect();
        assert!(lacking.is_empty(), "{slug} has no vector {lacking:?}");
        for name in names {
            let vector = Vector::read(&slug, &name);
            let needs_solution = needed.contains(&name) && name != EXAMPLE;
            assert!(!needs_solution || vector.has_solution(), "{slug}/{name} has no solution");
        }
    }
}
