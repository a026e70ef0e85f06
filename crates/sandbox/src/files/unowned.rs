//! Shown trees whose files have no owner in the sandbox, so that nothing in them is writable.
//!
//! A read-only mount prevents neither a connection to a socket of the host below it nor the opening
//! of a fifo for writing. An ID-mapped mount does, if its map contains none of the ids that files
//! have: the kernel refuses every write to an inode whose owner it cannot map. That holds for sockets
//! of any age and any owner. Reading and executing depend on the rights of others, which are a
//! tenant's rights anyway.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::pool::idmap;
use crate::pool::namespace_holder::NamespaceHolder;
use crate::sys;
use cofferdam_core::weakened::{self, Wall};

/// The user namespace of such mounts, and the trees that can be mounted with it.
#[derive(Debug)]
pub struct UnownedTrees {
    /// `None` if no tree can.
    pub namespace: Option<Arc<OwnedFd>>,
    /// One answer per tree, in their order.
    pub trees: Vec<bool>,
}

/// A probe for them, on a thread of its own: it starts a process and drops mounts, and a sandbox for
/// a single run should not wait for that.
#[derive(Debug)]
pub struct UnownedProbe {
    trees: usize,
    found: Option<Receiver<UnownedTrees>>,
}

impl UnownedProbe {
    /// Starts to probe the trees at these real paths, among these mount points. After its answer the
    /// thread runs `then`.
    pub fn begin(
        trees: Vec<PathBuf>,
        mount_points: Arc<[PathBuf]>,
        then: Option<impl FnOnce() + Send + 'static>,
    ) -> io::Result<Self> {
        let count = trees.len();
        if weakened::lacks(Wall::Unowned) {
            return Ok(Self::impossible(count));
        }
        let (sender, found) = channel();
        // Here and not on the thread: when the controllers of this process's group are enabled, the
        // group must hold no other live process, and this one is dead once it was started.
        let holder = match NamespaceHolder::start() {
            Ok(holder) => holder,
            Err(error) => {
                log::warn!("cannot mount shown trees as unowned: {error}");
                return Ok(Self::impossible(count));
            }
        };
        let find = move || find(&holder, &trees, &mount_points, &sender, then);
        thread::Builder::new().name("unowned".to_owned()).spawn(find)?;
        Ok(Self { trees: count, found: Some(found) })
    }

    /// For a service that cannot map ids.
    pub fn impossible(trees: usize) -> Self {
        Self { trees, found: None }
    }

    /// Waits for the answer: no tree if user namespaces are not available.
    pub fn finish(self) -> UnownedTrees {
        let none = UnownedTrees { namespace: None, trees: vec![false; self.trees] };
        self.found.and_then(|found| found.recv().ok()).unwrap_or(none)
    }
}

fn find(
    holder: &NamespaceHolder,
    trees: &[PathBuf],
    mount_points: &[PathBuf],
    found: &Sender<UnownedTrees>,
    then: Option<impl FnOnce()>,
) {
    let namespace = match idmap::of_no_owner(holder) {
        Ok(namespace) => Arc::new(namespace),
        Err(error) => return log::warn!("cannot mount shown trees as unowned: {error}"),
    };
    // All trees of one mount have the same answer. The copies are dropped after the answer is sent.
    let mut copies: BTreeMap<&Path, Option<OwnedFd>> = BTreeMap::new();
    let mut answers = Vec::with_capacity(trees.len());
    for tree in trees {
        // The mount points are sorted, so the last one that is a prefix is the longest.
        let mount = mount_points.iter().rfind(|point| tree.starts_with(point)).unwrap_or(tree);
        let copy = || sys::copy_with_ids_mapped(tree, namespace.as_fd()).ok().flatten();
        answers.push(copies.entry(mount).or_insert_with(copy).is_some());
    }
    // The receiver is gone if opening the sandbox failed in the meantime.
    let _ = found.send(UnownedTrees { namespace: Some(Arc::clone(&namespace)), trees: answers });
    if let Some(then) = then {
        then();
    }
}
