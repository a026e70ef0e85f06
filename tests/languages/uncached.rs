//! The caches of `make warm` only make checks faster.

use std::fs;
use std::io::ErrorKind;

use cofferdam_test_server::shipped::{self, CACHE, repository};
use cofferdam_test_server::vector::Vector;

use crate::overlaid::Overlaid;

/// Its crates are only in the cache: without it a checker has only the standard library.
const NEEDS_ITS_CACHE: &str = "rust";
/// The Go compiler then compiles every standard library package that a checker uses.
const TIMEOUT: &str = "3m";

#[test]
#[ignore = "needs the toolchains: make test-langs"]
fn a_language_gives_the_same_answers_without_its_cache() {
    let overlaid = Overlaid::new();
    match fs::remove_dir_all(overlaid.root().join(CACHE)) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("the root has languages without caches only");
            return;
        }
        removed => removed.unwrap(),
    }
    let langs = repository().join("langs");
    let service = shipped::setup_with(&langs, Some(&overlaid.root())).start();
    for (slug, language) in shipped::available(&service) {
        if slug != NEEDS_ITS_CACHE {
            let good = Vector::read(&slug, "good").within(TIMEOUT);
            good.run(&service, &slug, &language).unwrap_or_else(|why| panic!("{slug}: {why}"));
        }
    }
}
