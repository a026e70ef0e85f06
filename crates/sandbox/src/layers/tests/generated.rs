//! Random histories of a workspace: freezing, copying and merging never change what it shows.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use cofferdam_tree::{ExtendedAttributes, StopCheck};
use proptest::prelude::*;

use super::support::*;
use crate::layers::chain::FrozenChain;
use crate::layers::mounts::attributes::AttributeCalls;
use crate::layers::space::Storage;
use crate::layers::workspace_fs::WorkspaceFs;

#[derive(Debug, Clone)]
enum Change {
    Write {
        path: usize,
        length: usize,
    },
    Sparse {
        path: usize,
    },
    MakeDirectory {
        path: usize,
    },
    Remove {
        path: usize,
    },
    RemoveTree {
        path: usize,
    },
    Rename {
        from: usize,
        to: usize,
    },
    Symlink {
        path: usize,
    },
    Link {
        from: usize,
        to: usize,
    },
    Mode {
        path: usize,
        mode: u32,
    },
    Owner {
        path: usize,
    },
    Attribute {
        path: usize,
        value: u8,
    },
    Fifo {
        path: usize,
    },
    /// Freezes, and keeps the chain or drops it.
    Freeze {
        keep: bool,
    },
    /// Drops the chains that were kept.
    Forget,
    Merge,
    StoppedMerge {
        after: u32,
    },
}

/// Few names, so that they meet: two levels of two.
fn path(number: usize) -> PathBuf {
    let names = ["a", "b"];
    let mut path = PathBuf::from("workspace");
    let mut rest = number % 6 + 1;
    while rest > 0 {
        path.push(names[(rest - 1) % 2]);
        rest = (rest - 1) / 2;
    }
    path
}

fn change() -> impl Strategy<Value = Change> {
    let at = || 0_usize..6;
    prop_oneof![
        4 => (at(), 0_usize..9_000).prop_map(|(path, length)| Change::Write { path, length }),
        1 => at().prop_map(|path| Change::Sparse { path }),
        6 => at().prop_map(|path| Change::MakeDirectory { path }),
        2 => at().prop_map(|path| Change::Remove { path }),
        2 => at().prop_map(|path| Change::RemoveTree { path }),
        3 => (at(), at()).prop_map(|(from, to)| Change::Rename { from, to }),
        1 => at().prop_map(|path| Change::Symlink { path }),
        2 => (at(), at()).prop_map(|(from, to)| Change::Link { from, to }),
        1 => (at(), 0_u32..0o10000).prop_map(|(path, mode)| Change::Mode { path, mode }),
        1 => at().prop_map(|path| Change::Owner { path }),
        1 => (at(), any::<u8>()).prop_map(|(path, value)| Change::Attribute { path, value }),
        1 => at().prop_map(|path| Change::Fifo { path }),
        4 => any::<bool>().prop_map(|keep| Change::Freeze { keep }),
        1 => Just(Change::Forget),
        2 => Just(Change::Merge),
        1 => (0_u32..12).prop_map(|after| Change::StoppedMerge { after }),
    ]
}

/// Makes the change in the directory `root`. What the kernel refuses, it refuses.
fn make(root: &Path, change: &Change) {
    let at = |number: &usize| root.join(path(*number));
    let _ = match change {
        // A fifo would wait for a reader.
        Change::Write { path, .. } | Change::Sparse { path } if is_special(&at(path)) => Ok(()),
        Change::Write { path, length } => fs::write(at(path), vec![7; *length]),
        Change::Sparse { path } => fs::File::create(at(path)).and_then(|file| {
            file.write_all_at(b"end", 100_000).and_then(|()| file.set_len(200_000))
        }),
        Change::MakeDirectory { path } => fs::create_dir(at(path)),
        Change::Remove { path } => fs::remove_file(at(path)),
        Change::RemoveTree { path } => fs::remove_dir_all(at(path)),
        Change::Rename { from, to } => fs::rename(at(from), at(to)),
        Change::Symlink { path } => symlink("../target", at(path)),
        Change::Link { from, to } => fs::hard_link(at(from), at(to)),
        Change::Mode { path, mode } if !at(path).is_symlink() => {
            fs::set_permissions(at(path), fs::Permissions::from_mode(*mode))
        }
        Change::Owner { path } => chown(at(path), Some(0), Some(0)),
        Change::Attribute { path, value } if at(path).is_dir() || at(path).is_file() => {
            let file = fs::File::open(at(path)).unwrap();
            AttributeCalls.set(file.as_fd(), c"user.test", &[*value])
        }
        Change::Fifo { path } => {
            nix::unistd::mkfifo(&at(path), nix::sys::stat::Mode::S_IRWXU).map_err(Into::into)
        }
        _ => Ok(()),
    };
}

fn is_special(path: &Path) -> bool {
    path.exists() && !path.is_file() && !path.is_dir()
}

/// A workspace and the chains that are kept, with what each showed when it was made.
struct History {
    fs: WorkspaceFs,
    kept: Vec<(FrozenChain, BTreeMapOfPaths)>,
}

type BTreeMapOfPaths = std::collections::BTreeMap<PathBuf, String>;

impl History {
    fn shown(&self) -> BTreeMapOfPaths {
        listing(&self.fs, self.fs.host_id().id())
    }

    fn take(&mut self, change: &Change) {
        match change {
            Change::Freeze { keep } => {
                let chain = self.fs.freeze(StopCheck::never()).unwrap();
                if *keep {
                    self.kept.push((chain, self.shown()));
                }
            }
            Change::Forget => self.kept.clear(),
            Change::Merge => self.fs.merge(StopCheck::never()).unwrap(),
            Change::StoppedMerge { after } => {
                let left = std::cell::Cell::new(*after);
                let stop = || left.replace(left.get().saturating_sub(1)) == 0;
                // It may be done before it is stopped.
                let _ = self.fs.merge(StopCheck(&stop));
            }
            change => make(&path_of(&self.fs), change),
        }
    }
}

/// How many histories are tried. An emulated guest sets fewer.
fn generated_cases() -> u32 {
    std::env::var("GENERATED_CASES").map_or(100, |cases| cases.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: generated_cases(), failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn no_freeze_copy_or_merge_changes_what_a_workspace_or_a_snapshot_shows(
        changes in prop::collection::vec(change(), 1..60),
    ) {
        if !is_root() {
            return Ok(());
        }
        let mut history = History { fs: workspace(), kept: Vec::new() };
        for change in &changes {
            let before = history.shown();
            history.take(change);
            let is_change = !matches!(
                change,
                Change::Freeze { .. } | Change::Forget | Change::Merge | Change::StoppedMerge { .. }
            );
            if !is_change {
                prop_assert_eq!(&history.shown(), &before, "{:?}", change);
            }
        }
        let copied = history.fs.copy_top(StopCheck::never()).unwrap();
        let id = history.fs.host_id().id();
        prop_assert_eq!(listing(layers().view(&copied).unwrap().tree(), id), history.shown());
        for (chain, then) in &history.kept {
            let fork = layers().fork(chain, LIMIT, Storage::Memory, &host_id()).unwrap();
            prop_assert_eq!(&listing(&fork, fork.host_id().id()), then);
        }
        // Without any snapshot, one layer is left that holds just what is seen.
        history.kept.clear();
        drop(copied);
        history.fs.merge(StopCheck::never()).unwrap();
        let entries = history.fs.open_top_entries().unwrap();
        prop_assert_eq!(listing(&entries, id), history.shown());
    }
}
