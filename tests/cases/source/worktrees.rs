//! Worktrees of a local repository: nothing of them stays in it, whenever git is killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam::case::source::{CellWorktree, SourceFault};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use tempfile::TempDir;

use super::scene::{commit, git, repository};

const MINUTE: Duration = Duration::from_secs(60);

/// A repository with a change that is not committed, and a directory for Cells.
struct Place(TempDir);

/// What must not change of a repository.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// The git directory, with `worktrees`.
    entries: Vec<String>,
    listed: String,
    status: String,
    refs: String,
    index: Vec<u8>,
    config: Vec<u8>,
    ran: bool,
}

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let path = place.repository();
        repository(&path);
        commit(&path, "second.txt", "second");
        fs::write(path.join("a.txt"), "changed").unwrap();
        fs::write(path.join("untracked"), "").unwrap();
        let hook = path.join(".git/hooks/post-checkout");
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        let script = format!("#!/bin/sh\ntouch {}\n", place.0.path().join("ran").display());
        fs::write(&hook, script).unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(place.0.path().join("cells")).unwrap();
        place
    }

    fn repository(&self) -> PathBuf {
        self.0.path().join("repository")
    }

    fn head(&self) -> String {
        git(&self.repository(), &["rev-parse", "HEAD"])
    }

    /// An empty directory, as a Cell has one.
    fn cell(&self, name: &str) -> PathBuf {
        let cell = self.0.path().join("cells").join(name).join("sandbox");
        fs::create_dir_all(&cell).unwrap();
        cell
    }

    fn add(&self, cell: &Path, timeout: Duration) -> Result<CellWorktree, SourceFault> {
        let (cancel, deadline) = (CancelToken::new().unwrap(), Deadline::after(timeout));
        let head = self.head();
        CellWorktree::add(&self.repository(), &head, cell, (&cancel, deadline))
            .map_err(|error| error.fault)
    }

    fn seen(&self) -> Seen {
        let repository = self.repository();
        let read = |name: &str| fs::read(repository.join(".git").join(name)).unwrap();
        let git = |args: &[&str]| git(&repository, &[&["--no-optional-locks"], args].concat());
        Seen {
            entries: entries(&repository.join(".git")),
            listed: git(&["worktree", "list"]),
            status: git(&["status", "--porcelain"]),
            refs: git(&["for-each-ref"]),
            index: read("index"),
            config: read("config"),
            ran: self.0.path().join("ran").exists(),
        }
    }
}

fn entries(directory: &Path) -> Vec<String> {
    let found = fs::read_dir(directory).into_iter().flatten();
    let names = found.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn a_worktree_is_at_its_commit_and_the_repository_stays_as_it_is() {
    let place = Place::new();
    let (before, first) = (place.seen(), place.cell("a"));
    let worktree = place.add(&first, MINUTE).unwrap();
    assert_eq!(fs::read_to_string(first.join("a.txt")).unwrap(), "first");
    assert!(!first.join("untracked").exists());
    assert_eq!(git(&first, &["rev-parse", "HEAD"]), place.head());
    assert_eq!(git(&first, &["status", "--porcelain", "--branch"]), "## HEAD (no branch)");
    assert_eq!(git(&first, &["log", "--format=%s"]), "second\nfirst");
    assert!(git(&place.repository(), &["worktree", "list"]).contains(first.to_str().unwrap()));
    // It is not pruned while the Cell lives.
    git(&place.repository(), &["worktree", "prune", "--expire", "now"]);
    commit(&first, "of-agent", "in the Cell");
    // The agent may do to it what it likes.
    fs::remove_file(first.join(".git")).unwrap();
    fs::create_dir(first.join(".git")).unwrap();
    drop(worktree);
    assert_eq!(place.seen(), before);
    assert_eq!(entries(first.parent().unwrap()), ["sandbox"]);
}

#[test]
fn git_that_is_killed_at_any_moment_leaves_nothing() {
    let place = Place::new();
    let repository = place.repository();
    for number in 0..100 {
        fs::write(repository.join(format!("file{number}")), format!("{number}\n")).unwrap();
    }
    commit(&repository, ".gitattributes", "last.txt filter=slow\n");
    commit(&repository, "last.txt", "filtered\n");
    // A command that git starts, and one that stays behind it.
    let sleeper = format!("sleep 86{}", std::process::id());
    let filter = format!("{sleeper} >/dev/null 2>&1 & sleep 0.2; cat");
    git(&repository, &["config", "filter.slow.smudge", &filter]);
    let before = place.seen();
    drop(place.add(&place.cell("whole"), MINUTE).unwrap());
    let mut killed = 0;
    for moment in 0..50 {
        let cell = place.cell(&moment.to_string());
        // The first ones are close together, and the last ones later than the filter ends on an idle machine.
        let added = place.add(&cell, Duration::from_micros(120) * moment * moment);
        match added {
            Ok(worktree) => {
                assert_eq!(fs::read_to_string(cell.join("last.txt")).unwrap(), "filtered\n");
                drop(worktree);
            }
            Err(fault) => {
                assert!(matches!(fault, SourceFault::TimedOut(_)), "{fault}");
                assert_eq!(entries(cell.parent().unwrap()), ["sandbox"], "at moment {moment}");
                assert_eq!(entries(&cell), [""; 0], "at moment {moment}");
                killed += 1;
            }
        }
        assert_eq!(running(&sleeper), 0, "at moment {moment}");
        assert_eq!(entries(&repository.join(".git")), before.entries, "at moment {moment}");
        if moment % 5 == 0 {
            assert_eq!(place.seen(), before, "at moment {moment}");
            git(&repository, &["fsck", "--strict"]);
        }
    }
    // None is done before the filter has slept; one that is seen too late may be.
    assert!(killed > 20, "only {killed} were killed");
}

/// How many processes have that command line.
fn running(command: &str) -> usize {
    let wanted = format!("{}\0", command.replace(' ', "\0"));
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| {
            fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == wanted.as_bytes())
        })
        .count()
}

#[test]
fn a_cancelled_worktree_leaves_nothing() {
    let place = Place::new();
    let before = place.seen();
    let cancel = CancelToken::new().unwrap();
    cancel.cancel();
    let (cell, ends) = (place.cell("a"), (&cancel, Deadline::after(MINUTE)));
    let added = CellWorktree::add(&place.repository(), &place.head(), &cell, ends);
    assert_eq!(added.unwrap_err().fault, SourceFault::Cancelled);
    assert_eq!(place.seen(), before);
}

#[test]
fn what_a_killed_process_left_goes_with_the_next_worktree_and_the_users_own_stays() {
    let place = Place::new();
    let repository = place.repository();
    let users = place.0.path().join("users");
    git(&repository, &["worktree", "add", "-q", "-b", "other", users.to_str().unwrap()]);
    // As on a disk that is not mounted now.
    fs::rename(&users, place.0.path().join("elsewhere")).unwrap();
    let (killed, live) = (place.cell("killed"), place.cell("live"));
    std::mem::forget(place.add(&killed, MINUTE).unwrap());
    let live = place.add(&live, MINUTE).unwrap();
    let made = repository.join(".git/worktrees");
    assert_eq!(entries(&made).len(), 3);
    drop(place.add(&place.cell("next"), MINUTE).unwrap());
    assert_eq!(entries(&made).len(), 3, "all files are there");
    fs::remove_dir_all(killed.parent().unwrap()).unwrap();
    // One that git has not made further than this, now and long ago.
    let half_made = |digits: &str| made.join(format!("cofferdam-cell-{}", digits.repeat(32)));
    let (now, long_ago) = (half_made("a"), half_made("b"));
    fs::create_dir(&now).unwrap();
    fs::create_dir(&long_ago).unwrap();
    let hours = std::time::SystemTime::now() - Duration::from_secs(2 * 3600);
    fs::File::open(&long_ago).unwrap().set_modified(hours).unwrap();
    drop(place.add(&place.cell("last"), MINUTE).unwrap());
    assert_eq!(entries(&made).len(), 3, "{:?}", entries(&made));
    assert!(now.exists() && !long_ago.exists());
    fs::remove_dir(now).unwrap();
    drop(live);
    assert_eq!(entries(&made), ["users"]);
}

#[test]
fn many_worktrees_come_and_go_at_the_same_time_and_git_works_in_each() {
    let place = Place::new();
    let before = place.seen();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let place = &place;
            scope.spawn(move || {
                for round in 0..4 {
                    let cell = place.cell(&format!("{thread}-{round}"));
                    let worktree = place.add(&cell, MINUTE).unwrap();
                    assert!(cell.join("second.txt").exists());
                    // Not `worktree list`: git itself fails there while another worktree is removed.
                    let top = git(&cell, &["rev-parse", "--show-toplevel"]);
                    assert_eq!(top.trim_end(), cell.to_str().unwrap());
                    git(&cell, &["reset", "-q", "--hard", "HEAD~1"]);
                    drop(worktree);
                }
            });
        }
    });
    assert_eq!(place.seen(), before);
}

#[test]
fn a_directory_without_a_repository_of_its_own_is_refused() {
    let place = Place::new();
    let words = |path: &Path| {
        let (cancel, deadline) = (CancelToken::new().unwrap(), Deadline::after(MINUTE));
        let cell = place.cell("refused");
        let added = CellWorktree::add(path, &place.head(), &cell, (&cancel, deadline));
        added.unwrap_err().to_string()
    };
    let none = place.0.path();
    let wanted = format!("source: '{}' cannot be cloned: it is no git repository", none.display());
    assert_eq!(words(none), wanted);
    let linked = place.0.path().join("linked");
    git(&place.repository(), &["worktree", "add", "-q", "--detach", linked.to_str().unwrap()]);
    assert!(words(&linked).ends_with("its .git is a file or a link, which leads elsewhere"));
}
