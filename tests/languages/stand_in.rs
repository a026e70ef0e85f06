//! Workspaces whose toolchain is unavailable here. Stand-ins check the calls to it: the READMEs of
//! `tests/langs/dart/stand-in` and `tests/langs/csharp/stand-in` explain what that proves.

use std::path::Path;

use cofferdam_test_server::shipped::{self, is_available, repository, table};
use cofferdam_test_server::vector::names;

use crate::overlaid::Overlaid;
use crate::queue::{Case, run_all};

/// The vectors whose solutions the dart stand-in knows.
const KNOWN_TO_DART: [&str; 2] = ["good", "wrong"];

/// Runs the vectors `names` of `slug` in `root`.
fn hold(slug: &str, root: &Path, names: impl IntoIterator<Item = String>) {
    let service = shipped::setup_with(&repository().join("langs"), Some(root)).start();
    let language = &table()[slug];
    assert!(is_available(&service, slug), "{slug} in {}", root.display());
    run_all(&service, names.into_iter().map(|name| Case { slug, language, name }).collect());
}

#[test]
fn the_dart_workspace_meets_the_needs_of_its_toolchain() {
    let overlaid = Overlaid::new();
    overlaid.install("tests/langs/dart/stand-in", "usr/local/lib/dart", "dart");
    hold("dart", &overlaid.root(), KNOWN_TO_DART.map(str::to_owned));
}

#[test]
#[ignore = "needs Mono of the toolchains: make test-langs"]
fn the_csharp_workspace_prefers_dotnet_and_meets_its_needs() {
    if !shipped::promised().iter().any(|slug| slug == "csharp") {
        println!("csharp is not among the LANGUAGES that were asked for");
        return;
    }
    let overlaid = Overlaid::new();
    overlaid.install("tests/langs/csharp/stand-in", "usr/local/lib/dotnet", "dotnet");
    hold("csharp", &overlaid.root(), names("csharp"));
}
