//! A walk in the order of the paths as texts: `a`, `a-b`, `a/b`. Follows no links and enters no mounts.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};

use nix::dir::Type;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, fstat, fstatat};

use crate::error::{During, WorkspaceFault};
use crate::walk::dir_stack::DirStack;
use crate::walk::open_beneath;
use crate::walk::path_stack::PathStack;

/// What a walk visits.
#[derive(Debug, Clone, Default)]
pub(crate) struct OrderedRange {
    /// The deepest level of entries, from 1.
    pub(crate) depth_max: usize,
    /// The walk holds enough names for this many entries, and may miss those after them.
    pub(crate) entries_max: usize,
    /// Only entries after this path are visited.
    pub(crate) after: Vec<u8>,
}

/// An entry of the directory that the walk is in.
#[derive(Debug)]
pub(crate) struct OrderedEntry {
    pub(crate) name: CString,
    /// `None` if the file system lists no types.
    listed: Option<Type>,
}

#[derive(Debug)]
struct OrderedTask {
    name: CString,
    listed: Option<Type>,
    /// The depth of the directory that has the name.
    level: usize,
    /// Whether the contents of the directory `name` are visited, or the entry itself.
    is_contents: bool,
}

impl OrderedTask {
    /// The path of a directory's contents goes on with a slash.
    fn order(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }

    fn key(&self) -> impl Iterator<Item = &u8> {
        self.name.to_bytes().iter().chain(self.is_contents.then_some(&b'/'))
    }
}

/// A walk in progress.
#[derive(Debug)]
pub(crate) struct OrderedWalk<'root> {
    dirs: DirStack<'root>,
    path: PathStack,
    /// The next one last.
    tasks: VecDeque<OrderedTask>,
    range: OrderedRange,
}

impl<'root> OrderedWalk<'root> {
    /// Walks over everything in `root` that is in `range`.
    pub(crate) fn over(
        root: BorrowedFd<'root>,
        range: OrderedRange,
    ) -> Result<Self, WorkspaceFault> {
        let (dirs, path) = (DirStack::new(root), PathStack::default());
        let mut walk = Self { dirs, path, tasks: VecDeque::new(), range };
        walk.list()?;
        Ok(walk)
    }

    /// The walk without the entry `name` of the root. Nothing was visited yet.
    pub(crate) fn without(mut self, name: &CStr) -> Self {
        self.tasks.retain(|task| task.name.as_c_str() != name);
        self
    }

    /// The directory of the last entry.
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.dirs.current()
    }

    /// The path of the directory of the last entry.
    pub(crate) fn path(&self) -> &PathStack {
        &self.path
    }

    /// The path of an entry.
    pub(crate) fn path_of(&self, name: &CStr) -> Vec<u8> {
        let mut path = Vec::with_capacity(self.path.bytes().len() + name.count_bytes() + 1);
        path.extend_from_slice(self.path.bytes());
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        path
    }

    /// Returns the next entry, or `None` at the end. A directory that has disappeared has no contents.
    pub(crate) fn advance(&mut self) -> Result<Option<OrderedEntry>, WorkspaceFault> {
        while let Some(task) = self.tasks.pop_back() {
            while self.dirs.depth() > task.level {
                self.dirs.ascend().during("return to")?;
                self.path.leave();
            }
            if !task.is_contents {
                return Ok(Some(OrderedEntry { name: task.name, listed: task.listed }));
            }
            self.enter(&task)?;
        }
        Ok(None)
    }

    /// The status of an entry of the current directory; `None` if it has disappeared.
    pub(crate) fn stat(&self, entry: &OrderedEntry) -> Result<Option<FileStat>, WorkspaceFault> {
        match fstatat(self.directory(), entry.name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno).during("stat"),
        }
    }

    fn enter(&mut self, task: &OrderedTask) -> Result<(), WorkspaceFault> {
        let opened = match open_beneath::open_directory(self.directory(), task.name.as_c_str()) {
            // It has disappeared or is something else by now.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(()),
            opened => opened.during("open")?,
        };
        let stat = fstat(&opened).during("stat")?;
        self.dirs.descend(opened, &stat);
        self.path.enter(&task.name);
        self.list()
    }

    /// Adds the names of the current directory.
    fn list(&mut self) -> Result<(), WorkspaceFault> {
        let held_max = self.range.entries_max.saturating_mul(2).saturating_add(512);
        let level = self.dirs.depth();
        let mut tasks = Vec::new();
        let listing = open_beneath::open_listing(self.dirs.current().as_fd()).during("list")?;
        for entry in listing {
            let entry = match entry {
                // The directory was removed after it was opened.
                Err(Errno::ENOENT) => break,
                entry => entry.during("list")?,
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.add(&mut tasks, name, entry.file_type(), level);
            if tasks.len() > held_max.saturating_mul(2) {
                tasks.select_nth_unstable_by(held_max, OrderedTask::order);
                tasks.truncate(held_max);
            }
        }
        tasks.sort_unstable_by(|one, other| other.order(one));
        self.tasks.extend(tasks);
        // The first ones are the last to be visited.
        let surplus = self.tasks.len().saturating_sub(held_max);
        self.tasks.drain(..surplus);
        Ok(())
    }

    /// Adds the tasks of an entry, if they are in the range.
    fn add(&self, tasks: &mut Vec<OrderedTask>, name: &CStr, listed: Option<Type>, level: usize) {
        let after = self.range.after.as_slice();
        let mut path = self.path_of(name);
        if path.as_slice() > after {
            tasks.push(OrderedTask { name: name.to_owned(), listed, level, is_contents: false });
        }
        let may_be_directory = matches!(listed, None | Some(Type::Directory));
        path.push(b'/');
        let is_after = path.as_slice() > after || after.starts_with(&path);
        if may_be_directory && is_after && level + 1 < self.range.depth_max {
            tasks.push(OrderedTask { name: name.to_owned(), listed, level, is_contents: true });
        }
    }
}

impl OrderedEntry {
    /// Whether the entry was a directory when it was listed, if the file system said so.
    pub(crate) fn is_directory(&self) -> Option<bool> {
        self.listed.map(|listed| listed == Type::Directory)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use proptest::prelude::*;
    use proptest::test_runner::Config;

    use super::*;
    use crate::testing::{directory, in_memory, make_deep};

    fn paths(root: BorrowedFd<'_>, range: OrderedRange) -> Vec<String> {
        let mut walk = OrderedWalk::over(root, range).unwrap();
        let mut paths = Vec::new();
        while let Some(entry) = walk.advance().unwrap() {
            paths.push(String::from_utf8(walk.path_of(&entry.name)).unwrap());
        }
        paths
    }

    fn everything() -> OrderedRange {
        OrderedRange { depth_max: usize::MAX, entries_max: usize::MAX, after: Vec::new() }
    }

    #[test]
    fn a_deep_tree_is_walked_with_few_descriptors() {
        let place = in_memory();
        make_deep(place.path(), 3_000);
        let root = directory(place.path());
        let mut walk = OrderedWalk::over(root.as_fd(), everything()).unwrap();
        let mut entries = 0;
        while walk.advance().unwrap().is_some() {
            entries += 1;
        }
        assert_eq!(entries, 3_001);
    }

    proptest! {
        #![proptest_config(Config { cases: 60, failure_persistence: None, ..Config::default() })]

        #[test]
        fn the_order_is_that_of_the_paths_and_pages_meet(
            names in proptest::collection::btree_set(r"[ab.\-0]{1,2}(/[ab.\-0]{1,2}){0,3}", 1..20),
            page in 1_usize..5,
            depth_max in 1_usize..5,
        ) {
            let place = in_memory();
            for name in &names {
                if name.split('/').all(|part| part != "." && part != "..") {
                    let path = place.path().join(name);
                    // A file can be in the way.
                    let _ = fs::create_dir_all(path.parent().unwrap());
                    let _ = fs::write(path, "");
                }
            }
            let root = directory(place.path());
            let all = paths(root.as_fd(), everything());
            let sorted: BTreeSet<String> = all.iter().cloned().collect();
            prop_assert_eq!(&all, &sorted.into_iter().collect::<Vec<_>>());
            let shallow = |path: &&String| path.split('/').count() <= depth_max;
            let expected: Vec<String> = all.iter().filter(shallow).cloned().collect();
            let mut paged: Vec<String> = Vec::new();
            loop {
                let after = paged.last().cloned().unwrap_or_default().into_bytes();
                let range = OrderedRange { depth_max, entries_max: page, after };
                let mut next = paths(root.as_fd(), range);
                next.truncate(page);
                if next.is_empty() {
                    break;
                }
                paged.extend(next);
            }
            prop_assert_eq!(paged, expected);
        }
    }
}
