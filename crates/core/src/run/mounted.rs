//! A workspace's own file system, shown in a sandbox.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// The directories that a workspace may be shown below, besides its usual place.
const PARENTS: [&str; 4] = ["/home", "/srv", "/mnt", "/data"];
const USUAL: &str = "/workspace";
const PATH_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 255;

/// A file system that outlives the sandbox, given as mounts that are attached nowhere. One sandbox
/// uses them up.
#[derive(Debug)]
pub struct MountedWorkspace {
    /// What programs see at `path`. It belongs to the tenant.
    pub workspace: OwnedFd,
    /// What programs see at `/tmp`.
    pub tmp: OwnedFd,
    /// Where programs see the workspace.
    pub path: WorkspacePath,
    /// Bytes of the sandbox's own file system, which holds `/run`, `/dev/shm` and `/var/tmp`. The
    /// disk limits of the run do not apply to it.
    pub own_bytes_max: u64,
    /// Files and directories on it.
    pub own_inodes_max: u64,
}

/// Where programs see a workspace: `/workspace`, or an absolute path below `/home`, `/srv`, `/mnt`
/// or `/data`, without `.`, `..`, empty names and a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WorkspacePath(PathBuf);

/// Why a workspace cannot be shown at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkspacePathError {
    /// It is neither `/workspace` nor below one of the directories.
    #[error("is not /workspace and not below /home, /srv, /mnt or /data")]
    Elsewhere,
    /// It has another form than the kernel's own.
    #[error("is not an absolute path without `.`, `..`, empty names and a slash at the end")]
    NotNormal,
    /// The path or a name in it is too long.
    #[error("is longer than {PATH_BYTES_MAX} bytes, or a name in it than {NAME_BYTES_MAX}")]
    TooLong,
}

impl WorkspacePath {
    /// Parses a path.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, WorkspacePathError> {
        let path = Path::new(text);
        let normal: PathBuf = path
            .components()
            .filter(|part| matches!(part, Component::RootDir | Component::Normal(_)))
            .collect();
        if !text.starts_with('/') || normal.as_os_str() != text || text.contains('\0') {
            return Err(WorkspacePathError::NotNormal);
        }
        let is_long = |part: Component<'_>| part.as_os_str().len() > NAME_BYTES_MAX;
        if text.len() > PATH_BYTES_MAX || path.components().any(is_long) {
            return Err(WorkspacePathError::TooLong);
        }
        let is_below = |parent: &str| path.starts_with(parent) && text != parent;
        if text != USUAL && !PARENTS.iter().any(|parent| is_below(parent)) {
            return Err(WorkspacePathError::Elsewhere);
        }
        Ok(Self(normal))
    }

    /// The path.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Whether it is `/workspace`.
    pub fn is_usual(&self) -> bool {
        self.0 == Path::new(USUAL)
    }
}

impl Default for WorkspacePath {
    fn default() -> Self {
        Self(USUAL.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_normal_paths_at_the_known_places_are_accepted() {
        use WorkspacePathError::{Elsewhere, NotNormal, TooLong};
        let long = format!("/home/{}", "x".repeat(256));
        let deep = format!("/home{}", "/xxxxxxxxx".repeat(103));
        for (text, wanted) in [
            ("/workspace", Ok(())),
            ("/home/agent", Ok(())),
            ("/srv/a/b", Ok(())),
            ("/mnt/x y", Ok(())),
            ("/data/ü", Ok(())),
            ("/home", Err(Elsewhere)),
            ("/homes/x", Err(Elsewhere)),
            ("/workspace/x", Err(Elsewhere)),
            ("/etc/x", Err(Elsewhere)),
            ("/", Err(Elsewhere)),
            ("", Err(NotNormal)),
            ("home/x", Err(NotNormal)),
            ("/home/x/", Err(NotNormal)),
            ("/home//x", Err(NotNormal)),
            ("//home/x", Err(NotNormal)),
            ("/home/./x", Err(NotNormal)),
            ("/home/../etc", Err(NotNormal)),
            ("/home/x/..", Err(NotNormal)),
            ("/home/a\0b", Err(NotNormal)),
            (&long, Err(TooLong)),
            (&deep, Err(TooLong)),
        ] {
            assert_eq!(WorkspacePath::parse(text).map(drop), wanted, "{text:?}");
        }
        assert!(WorkspacePath::default().is_usual());
        assert_eq!(WorkspacePath::parse("/workspace"), Ok(WorkspacePath::default()));
    }
}
