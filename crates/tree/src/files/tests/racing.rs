//! Tests against a thread that exchanges directories for links while the service works.

use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::fcntl::{RenameFlags, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::{TestWorkspace, staged, word};
use crate::files::{
    CollectLimits, DirectorySource, ListRange, StageBatch, StagedAccess, collect, delete, digest,
    get, list, make_directory, move_entry, pack, put_file, stat,
};
use crate::testing::{directory, entry, in_time, picture};
use crate::{SourceDir, StopCheck, TreeLimits};

/// The calls that each operation makes against the thread.
const ROUNDS: usize = 400;
/// The calls to meet a window of a few microseconds.
const WINDOW_ROUNDS: usize = 20_000;

/// Ends a thread also when the test fails.
struct StopOnDrop<'test>(&'test AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `body` while a thread exchanges `one` and `other`, and returns how often it did.
fn while_exchanged(one: &Path, other: &Path, body: impl FnOnce()) -> u64 {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let above = directory(one.parent().unwrap());
    let names = [one, other].map(|path| path.file_name().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let flags = RenameFlags::RENAME_EXCHANGE;
                if renameat2(above.as_fd(), names[0], above.as_fd(), names[1], flags).is_ok() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let _stop = StopOnDrop(&stop);
        body();
    });
    count.load(Ordering::Relaxed)
}

#[test]
fn a_directory_exchanged_for_a_link_leads_no_operation_out() {
    let workspace = TestWorkspace::new();
    workspace.plant("work/dir/file", "inside");
    fs::write(workspace.outside().join("file"), "outside").unwrap();
    workspace.link("work/link", workspace.outside());
    let before = picture(&workspace.outside());
    let (root, limits) = (workspace.root(), TreeLimits::default());
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("skill"), "skill").unwrap();
    let source = SourceDir::open_without_links(&source.path().canonicalize().unwrap()).unwrap();
    let mut outcomes = [0_usize; 2];
    let mut note = |outcome: &str| outcomes[usize::from(outcome == "through_link")] += 1;
    let exchanged =
        while_exchanged(&workspace.host("work/dir"), &workspace.host("work/link"), || {
            for round in 0..ROUNDS {
                if let Ok(mut opened) = get(&root, &workspace.at("work/dir/file")) {
                    let mut text = String::new();
                    opened.file.read_to_string(&mut text).unwrap();
                    assert!(["inside", "new"].contains(&text.as_str()), "{text}");
                }
                note(word(put_file(
                    &root,
                    &workspace.at("work/dir/file"),
                    &mut &b"new"[..],
                    0o600,
                )));
                note(word(put_file(&root, &workspace.at("work/dir/deep/x"), &mut &b"new"[..], 0)));
                note(word(make_directory(&root, &workspace.at("work/dir/made/x"), 0o777)));
                let (at, out) = (workspace.at("work/dir/l"), workspace.at("out"));
                note(word(staged(&root, |batch| batch.link(&at, &out))));
                let (from, to) = (workspace.at("work/dir/deep/x"), workspace.at("work/dir/moved"));
                note(word(move_entry(&root, (&from, &to), true, &limits)));
                note(word(delete(&root, &workspace.at("work/dir/made"), true)));
                note(word(delete(&root, &workspace.at("work/dir/secret"), true)));
                if round % 8 == 0 {
                    let (to, access) = (workspace.at("work/dir/tree"), StagedAccess::ReadOnly);
                    let source = DirectorySource::Directory(source.as_fd());
                    let directory =
                        |batch: &mut StageBatch<'_>| batch.directory(&to, source, access, &limits);
                    note(word(staged(&root, directory)));
                }
                let range = ListRange { depth: 3, entries_max: 100, after: None };
                for info in
                    list(&root, &workspace.at("work"), range).iter().flat_map(|page| &page.entries)
                {
                    assert_ne!(info.location.name().unwrap(), "secret");
                }
                let _ = stat(&root, &workspace.at("work/dir/file"));
                let _ = digest(&root, &workspace.at("work"), &limits, StopCheck::never());
            }
        });
    assert_eq!(picture(&workspace.outside()), before);
    assert!(exchanged > 0, "the thread did not run");
    assert!(outcomes[0] > 0, "no operation succeeded");
}

#[test]
fn a_new_directory_exchanged_for_a_read_only_tree_does_not_give_it_away() {
    let workspace = TestWorkspace::new();
    workspace.read_only("work/tree");
    let before = picture(&workspace.host("work/tree"));
    let root = workspace.root();
    let above = directory(&workspace.host("work"));
    let stop = AtomicBool::new(false);
    let exchanged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let flags = RenameFlags::RENAME_EXCHANGE;
            while !stop.load(Ordering::Relaxed) {
                if renameat2(above.as_fd(), "tree", above.as_fd(), "new", flags).is_ok() {
                    // Back, unless the new one was removed.
                    exchanged.fetch_add(1, Ordering::Relaxed);
                    let _ = renameat2(above.as_fd(), "new", above.as_fd(), "tree", flags);
                }
            }
        });
        let _stop = StopOnDrop(&stop);
        for _ in 0..WINDOW_ROUNDS {
            let _ = make_directory(&root, &workspace.at("work/new"), 0);
            let _ = put_file(&root, &workspace.at("work/new/x"), &mut &b"x"[..], 0);
            let _ = delete(&root, &workspace.at("work/new"), true);
        }
    });
    assert!(exchanged.load(Ordering::Relaxed) > 0, "the thread did not run");
    // Whichever name it has.
    let names = workspace.names("work");
    let kept =
        names.iter().find(|name| workspace.host(&format!("work/{name}/inner/file")).exists());
    let kept = workspace.host(&format!("work/{}", kept.expect("the tree was removed")));
    assert_eq!(picture(&kept), before);
    assert_eq!(entry(&kept).owner.uid, 0);
}

#[test]
fn a_file_exchanged_for_a_fifo_or_a_link_hangs_nothing_and_reads_nothing_else() {
    in_time(|| {
        let workspace = TestWorkspace::new();
        workspace.plant("work/file", "inside");
        mkfifo(&workspace.host("work/fifo"), Mode::S_IRWXU).unwrap();
        fs::write(workspace.outside().join("secret"), "unguarded").unwrap();
        workspace.link("work/link", workspace.outside().join("secret"));
        let root = workspace.root();
        let patterns = ["work/file".to_owned(), "work/**".to_owned()];
        let check = || {
            for _ in 0..ROUNDS {
                if let Ok(mut opened) = get(&root, &workspace.at("work/file")) {
                    let mut text = String::new();
                    opened.file.read_to_string(&mut text).unwrap();
                    assert_eq!(text, "inside");
                }
                let collected = collect(&root, &patterns, CollectLimits::default()).unwrap();
                assert!(collected.files.iter().all(|file| file.content == b"inside"));
                let mut packed = Vec::new();
                let (limits, never) = (TreeLimits::default(), StopCheck::never());
                pack(&root, &workspace.at("work"), &limits, never, &mut packed).unwrap();
                // The text of the link is packed, the file that it leads to is not.
                assert!(!packed.windows(9).any(|part| part == b"unguarded"));
            }
        };
        for other in ["work/fifo", "work/link"] {
            let exchanged =
                while_exchanged(&workspace.host("work/file"), &workspace.host(other), check);
            assert!(exchanged > 0, "the thread did not run");
        }
    });
}
