//! A workspace's own file system, shown in a sandbox.

use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// The directories that a workspace may be shown below, besides its usual place.
const PARENTS: [&str; 4] = ["/home", "/srv", "/mnt", "/data"];
const USUAL: &str = "/workspace";
/// Top-level directories that the system, or the service in each sandbox, has for itself.
const SYSTEM: [&str; 22] = [
    "agent", "bin", "boot", "deps", "dev", "etc", "lib", "lib32", "lib64", "libexec", "libx32",
    "logs", "proc", "run", "sbin", "snap", "solution", "sys", "task", "tests", "tmp", "usr",
];
/// Further directories of the system: nothing replaces one of them, nor what holds it.
const SYSTEM_BELOW_VAR: [&str; 3] = ["/var/lock", "/var/run", "/var/tmp"];
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
    /// Further directories of the same file system.
    pub others: Vec<MountedDirectory>,
    /// Bytes of the sandbox's own file system, which holds `/run`, `/dev/shm` and `/var/tmp`. The
    /// disk limits of the run do not apply to it.
    pub own_bytes_max: u64,
    /// Files and directories on it.
    pub own_inodes_max: u64,
}

/// A directory that a sandbox shows beside its workspace, given as a mount that is attached nowhere.
#[derive(Debug)]
pub struct MountedDirectory {
    /// What programs see at `target`.
    pub mount: OwnedFd,
    /// The absolute path, of names only. What the root has there or above it is not shown.
    pub target: PathBuf,
}

/// Where programs see a workspace: an absolute path without `.`, `..`, empty names and a slash at the
/// end, outside the directories of the system.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WorkspacePath(PathBuf);

/// Why a workspace cannot be shown at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkspacePathError {
    /// It is neither `/workspace` nor below one of the directories.
    #[error("is not /workspace and not below /home, /srv, /mnt or /data")]
    Elsewhere,
    /// It is or contains a directory of the system, or is below one.
    #[error("is a directory of the system, or below one")]
    System,
    /// It has another form than the kernel's own.
    #[error("is not an absolute path without `.`, `..`, empty names and a slash at the end")]
    NotNormal,
    /// The path or a name in it is too long.
    #[error("is longer than {PATH_BYTES_MAX} bytes, or a name in it than {NAME_BYTES_MAX}")]
    TooLong,
}

impl WorkspacePath {
    /// Parses `/workspace`, or a path below `/home`, `/srv`, `/mnt` or `/data`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, WorkspacePathError> {
        let normal = Self::normal(text)?;
        let is_below = |parent: &str| normal.starts_with(parent) && text != parent;
        if text != USUAL && !PARENTS.iter().any(|parent| is_below(parent)) {
            return Err(WorkspacePathError::Elsewhere);
        }
        Ok(Self(normal))
    }

    /// Parses a path anywhere outside the directories of the system, such as `/app`. What the root has there
    /// or above it, the sandbox does not show.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_outside_system(text: &str) -> Result<Self, WorkspacePathError> {
        let normal = Self::normal(text)?;
        let top = normal.iter().nth(1).and_then(|name| name.to_str()).unwrap_or_default();
        // The sandbox's own entries at the top begin with a dot.
        let is_system = top.is_empty()
            || top.starts_with('.')
            || SYSTEM.contains(&top)
            || SYSTEM_BELOW_VAR
                .iter()
                .map(Path::new)
                .any(|own| normal.starts_with(own) || own.starts_with(&normal));
        if is_system { Err(WorkspacePathError::System) } else { Ok(Self(normal)) }
    }

    fn normal(text: &str) -> Result<PathBuf, WorkspacePathError> {
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
        Ok(normal)
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
        use WorkspacePathError::{Elsewhere, NotNormal, System, TooLong};
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
        for (text, wanted) in [
            ("/app", Ok(())),
            ("/root", Ok(())),
            ("/testbed/src", Ok(())),
            ("/workspace", Ok(())),
            ("/library", Ok(())),
            ("/agents", Ok(())),
            ("/var/www", Ok(())),
            ("/", Err(System)),
            ("/usr/src/app", Err(System)),
            ("/lib64", Err(System)),
            ("/tests/x", Err(System)),
            ("/solution", Err(System)),
            ("/tmp/x", Err(System)),
            ("/run/x", Err(System)),
            ("/.overlay", Err(System)),
            ("/var", Err(System)),
            ("/var/tmp/x", Err(System)),
            ("/app/", Err(NotNormal)),
            ("app", Err(NotNormal)),
            ("/app/../etc", Err(NotNormal)),
        ] {
            let parsed = WorkspacePath::parse_outside_system(text);
            assert_eq!(parsed.map(drop), wanted, "{text:?}");
        }
        assert!(WorkspacePath::default().is_usual());
        assert_eq!(WorkspacePath::parse("/workspace"), Ok(WorkspacePath::default()));
    }
}
