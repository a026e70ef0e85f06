//! Workspaces whose toolchain cannot be had here, held by stand-ins to what they tell it: the
//! READMEs of `tests/langs/dart/stand-in` and `tests/langs/csharp/stand-in` say what that shows.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use tempfile::TempDir;

use crate::queue::{Case, run_all};
use crate::shipped::{self, is_available, repository, table};
use crate::vectors::names;

/// The vectors whose solutions dart's stand-in knows.
const KNOWN_TO_DART: [&str; 2] = ["good", "wrong"];

/// The root of the toolchains, or the host's, with files of a test over it.
struct Overlaid {
    places: TempDir,
}

impl Overlaid {
    fn new() -> Self {
        let places = tempfile::tempdir().unwrap();
        let at = |name| places.path().join(name);
        for name in ["memory", "root"] {
            fs::create_dir(at(name)).unwrap();
        }
        let none = None::<&str>;
        mount(Some("tmpfs"), &at("memory"), Some("tmpfs"), MsFlags::empty(), none).unwrap();
        for name in ["memory/upper", "memory/work"] {
            fs::create_dir(at(name)).unwrap();
        }
        let below = shipped::rootfs().unwrap_or_else(|| PathBuf::from("/"));
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            below.display(),
            at("memory/upper").display(),
            at("memory/work").display()
        );
        mount(Some("overlay"), &at("root"), Some("overlay"), MsFlags::empty(), Some(&*layers))
            .unwrap();
        Self { places }
    }

    fn root(&self) -> PathBuf {
        self.places.path().join("root")
    }

    /// A copy of the repository's `tree` at `place`, and a link to its file `program` where boxes
    /// search.
    fn install(&self, tree: &str, place: &str, program: &str) {
        let target = self.root().join(place);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let copied =
            Command::new("cp").arg("-r").arg(repository().join(tree)).arg(&target).status();
        assert!(copied.unwrap().success(), "{tree} to {place}");
        let link = self.root().join("usr/local/bin").join(program);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(Path::new("/").join(place).join(program), link).unwrap();
    }
}

impl Drop for Overlaid {
    fn drop(&mut self) {
        for name in ["root", "memory"] {
            // A box of a failed test may still be there.
            let _ = umount2(&self.places.path().join(name), MntFlags::MNT_DETACH);
        }
    }
}

/// Runs the vectors `names` of `slug` in `root`.
fn hold(slug: &str, root: &Path, names: impl IntoIterator<Item = String>) {
    let service = shipped::setup_with(&repository().join("langs"), Some(root)).start();
    let language = &table()[slug];
    assert!(is_available(&service, slug), "{slug} in {}", root.display());
    run_all(&service, names.into_iter().map(|name| Case { slug, language, name }).collect());
}

#[test]
fn the_dart_workspace_gives_its_toolchain_what_it_needs() {
    let overlaid = Overlaid::new();
    overlaid.install("tests/langs/dart/stand-in", "usr/local/lib/dart", "dart");
    hold("dart", &overlaid.root(), KNOWN_TO_DART.map(str::to_owned));
}

#[test]
#[ignore = "needs Mono of the toolchains: make test-langs"]
fn the_csharp_workspace_prefers_dotnet_and_gives_it_what_it_needs() {
    if !shipped::promised().iter().any(|slug| slug == "csharp") {
        println!("csharp is not among the LANGUAGES that were asked for");
        return;
    }
    let overlaid = Overlaid::new();
    overlaid.install("tests/langs/csharp/stand-in", "usr/local/lib/dotnet", "dotnet");
    hold("csharp", &overlaid.root(), names("csharp"));
}
