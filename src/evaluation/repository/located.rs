//! A commit whose objects are on this host.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, fchownat, symlinkat};

use super::error::RepositoryError;
use super::git::{GitCall, GitSandbox, put_file};
use super::mirror::store::Mirror;
use super::revision::{RefList, Revision};
use crate::evaluation::trees::{PhaseTree, TMP};
use cofferdam_core::{Bind, SetupFailure};

/// Where sandboxes see the repository's objects, read-only.
pub const MIRROR_PATH: &str = "/mirror";
/// Where they see its objects.
pub const OBJECTS_PATH: &str = "/mirror/objects";
/// Where git sees a repository of the host with a configuration of ours.
const LOCAL_PATH: &str = "/tmp/local.git";
const LOCAL_NAME: &str = "local.git";
/// Each ref with its object, and with the commit of an annotated tag, as `git ls-remote` prints them.
const REF_FORMAT: &str = "--format=%(objectname)%09%(refname)%0a%(*objectname)%09%(refname)^{}";

/// A commit whose objects are on this host.
#[derive(Debug, Clone)]
pub struct LocatedCommit {
    /// Its full hash.
    pub commit: String,
    /// The branches and tags of its repository.
    pub refs: RefList,
    /// Whether nothing was fetched for it.
    pub cached: bool,
    objects: ObjectSource,
}

#[derive(Debug, Clone)]
enum ObjectSource {
    Mirror(Arc<Mirror>),
    /// A repository of the host, in this directory.
    Local(Bind),
}

/// What shows the bare repository at `path` in a sandbox.
pub fn shown_at_mirror(path: &Path) -> Bind {
    Bind { source: path.to_owned(), target: MIRROR_PATH.into(), read_only: true }
}

impl LocatedCommit {
    /// `commit`, in `mirror`.
    pub fn in_mirror(mirror: &Arc<Mirror>, commit: String, refs: RefList, cached: bool) -> Self {
        Self { commit, refs, cached, objects: ObjectSource::Mirror(Arc::clone(mirror)) }
    }

    /// Finds the commit that `revision` names in the repository of the host at `git_directory`.
    ///
    /// # Errors
    /// The repository has no such commit, or git failed.
    pub fn in_directory(
        git_directory: &Path,
        revision: &Revision,
        git: &GitSandbox<'_>,
    ) -> Result<Self, RepositoryError> {
        let bind = shown_at_mirror(git_directory);
        make_local(git.tree())?;
        let run = |args| {
            let binds = vec![bind.clone()];
            git.run(GitCall { args, git_dir: LOCAL_PATH, binds, ..GitCall::default() })
        };
        let listed = run(vec!["for-each-ref", REF_FORMAT, "refs/heads", "refs/tags"])?;
        let refs = RefList::parse(&String::from_utf8_lossy(&listed));
        let not_found = || RepositoryError::CommitNotFound { commit: revision.text().to_owned() };
        let hash = match revision {
            Revision::Full(hash) => Some(hash.clone()),
            Revision::Name(name) => {
                refs.find(name).map(str::to_owned).or_else(|| revision.short_hash())
            }
        };
        let object = format!("{}^{{commit}}", hash.ok_or_else(not_found)?);
        let commit = match run(vec!["rev-parse", "--quiet", "--verify", &object]) {
            Ok(printed) => String::from_utf8_lossy(&printed).trim().to_owned(),
            Err(RepositoryError::CloneFailed { limit: None, .. }) => return Err(not_found()),
            Err(error) => return Err(error),
        };
        Ok(Self { commit, refs, cached: true, objects: ObjectSource::Local(bind) })
    }

    /// Whether its objects were checked when they were fetched.
    pub fn is_checked(&self) -> bool {
        matches!(self.objects, ObjectSource::Mirror(_))
    }

    /// What shows its objects in a sandbox, at [`OBJECTS_PATH`].
    pub fn bind(&self) -> Bind {
        match &self.objects {
            ObjectSource::Mirror(mirror) => shown_at_mirror(mirror.path()),
            ObjectSource::Local(bind) => bind.clone(),
        }
    }
}

/// Makes a repository with the objects and refs of the one at [`MIRROR_PATH`], without its configuration.
fn make_local(tree: &PhaseTree) -> Result<(), RepositoryError> {
    let place = format!("{TMP}/{LOCAL_NAME}");
    tree.make_directory(&place)?;
    put_file(tree, &format!("{place}/HEAD"), b"ref: refs/heads/none\n")?;
    let config = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n";
    put_file(tree, &format!("{place}/config"), config)?;
    for name in ["objects", "refs", "packed-refs"] {
        let owner = tree.owner();
        make_link(
            tree.root(),
            &format!("{MIRROR_PATH}/{name}"),
            &format!("{place}/{name}"),
            owner.uid,
        )
        .map_err(|errno| SetupFailure::from_errno(format!("make {place}/{name}"), errno as i32))?;
    }
    Ok(())
}

fn make_link(root: BorrowedFd<'_>, to: &str, at: &str, owner: u32) -> Result<(), Errno> {
    match symlinkat(to, root, at) {
        Ok(()) => {}
        Err(Errno::EEXIST) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    let flags = nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW;
    fchownat(root, at, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)), flags)
}
