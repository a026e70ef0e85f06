//! ShownPath trees in which everything seems to belong to nobody, so that nothing in them is writable.
//!
//! A read-only mount stops neither a connection to a socket of the host below it nor the opening of
//! a fifo for writing. A mount with mapped ids does, whose map has none of the ids that files
//! have: the kernel refuses every write to an inode whose owner it could not write back. That
//! holds for sockets made at any time, whoever made them; reading and executing go by the rights
//! that all others have, which are the rights a tenant has anyway.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use crate::host::weakened;
use crate::host::weakened::Wall;
use crate::pool::idmap;
use crate::pool::namespace_holder::NamespaceHolder;
use crate::sys;

/// The user namespace of such mounts, and which trees can be mounted so.
#[derive(Debug)]
pub struct UnownedTrees {
    /// Where there is none, no tree can.
    pub namespace: Option<Arc<OwnedFd>>,
    /// One answer a tree, in their order.
    pub trees: Vec<bool>,
}

/// The same while it is being found out, on a thread of its own: it starts a process and lets go
/// of mounts, which a sandbox for a single run should not wait for.
#[derive(Debug)]
pub struct UnownedProbe {
    trees: usize,
    found: Option<Receiver<UnownedTrees>>,
}

impl UnownedProbe {
    /// Begins for the trees at these real paths, among these mount points. Once it has answered,
    /// the thread does what comes `then`.
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
        // Here and not on the thread: the group of this process may have to be empty of others when
        // its controllers are switched on, and this one is dead when it has been started.
        let holder = match NamespaceHolder::start() {
            Ok(holder) => holder,
            Err(error) => {
                log::warn!("shown trees keep their owners: {error}");
                return Ok(Self::impossible(count));
            }
        };
        let find = move || find(&holder, &trees, &mount_points, &sender, then);
        thread::Builder::new().name("unowned".to_owned()).spawn(find)?;
        Ok(Self { trees: count, found: Some(found) })
    }

    /// For a service that may not map ids.
    pub fn impossible(trees: usize) -> Self {
        Self { trees, found: None }
    }

    /// What was found; nothing where user namespaces are not to be had.
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
    let namespace = match idmap::of_nobody(holder) {
        Ok(namespace) => Arc::new(namespace),
        Err(error) => return log::warn!("shown trees keep their owners: {error}"),
    };
    // All of one mount answer alike. The copies stay until the answer is out.
    let mut copies: BTreeMap<&Path, Option<OwnedFd>> = BTreeMap::new();
    let mut answers = Vec::with_capacity(trees.len());
    for tree in trees {
        // Of the mount points on its way, which are sorted, the last is the longest.
        let mount = mount_points.iter().rfind(|point| tree.starts_with(point)).unwrap_or(tree);
        let copy = || sys::copy_with_ids_mapped(tree, namespace.as_fd()).ok().flatten();
        answers.push(copies.entry(mount).or_insert_with(copy).is_some());
    }
    // A sandbox that was given up in the meantime wants no answer.
    let _ = found.send(UnownedTrees { namespace: Some(Arc::clone(&namespace)), trees: answers });
    if let Some(then) = then {
        then();
    }
}
