//! The `[root]` section: which paths of the host a sandbox sees, each with a reason.

use serde::Deserialize;

/// The top-level directories of the host that are visible: those with programs. Any other
/// directory, existing or future, may hold private data.
pub const SYSTEM: [&str; 11] =
    ["bin", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "sbin", "usr"];

/// The longest path, in bytes: the kernel's `PATH_MAX` without its NUL.
const PATH_BYTES_MAX: usize = 4095;
/// The longest name, in bytes: the kernel's `NAME_MAX`.
const NAME_BYTES_MAX: usize = 255;

/// What a sandbox sees of the host's root file system. All paths are absolute and unique.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootView {
    /// Paths that are hidden.
    pub hide: Vec<String>,
    /// Paths that are visible although they are below a hidden path or outside [`SYSTEM`].
    pub keep: Vec<String>,
    /// The device files in the sandbox's own `/dev`.
    pub devices: Vec<String>,
    /// Masked paths in the sandbox's own `/proc`.
    pub proc_mask: Vec<String>,
}

/// An invalid path entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("root.{list}: {path:?} {fault}")]
pub struct PathError {
    /// The list in `[root]`.
    pub list: &'static str,
    /// The path.
    pub path: String,
    /// What is wrong with it.
    pub fault: PathFault,
}

/// What is wrong with a path entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// The path is not spelled as the kernel prints it.
    #[error("is not an absolute path without `.`, `..` and empty parts")]
    NotPlain,
    /// Its group has no reason.
    #[error("is given without a reason")]
    NoReason,
    /// The list has the path already.
    #[error("is listed twice")]
    Twice,
    /// The list accepts only paths below this one.
    #[error("is not below {0}")]
    NotBelow(&'static str),
    /// The path is visible anyway.
    #[error("is neither below a hidden path nor outside the system's directories")]
    NotHidden,
}

/// The `[root]` section of a profile file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RootSection {
    hide: Vec<PathGroup>,
    keep: Vec<PathGroup>,
    devices: Vec<PathGroup>,
    proc_mask: Vec<PathGroup>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PathGroup {
    paths: Vec<String>,
    #[serde(default)]
    reason: String,
}

impl RootSection {
    /// Appends the entries of an extended profile.
    pub(super) fn append(&mut self, base: Self) {
        self.hide.extend(base.hide);
        self.keep.extend(base.keep);
        self.devices.extend(base.devices);
        self.proc_mask.extend(base.proc_mask);
    }

    /// Validates all entries and returns their paths.
    pub(super) fn checked(self) -> Result<RootView, PathError> {
        let hide = paths("hide", self.hide, |_| None)?;
        let keep = paths("keep", self.keep, |path| {
            let hidden = hide.iter().any(|hidden| is_below(path, hidden));
            (!hidden && is_in_system(path)).then_some(PathFault::NotHidden)
        })?;
        let below = |parent| {
            move |path: &str| (!is_below(path, parent)).then_some(PathFault::NotBelow(parent))
        };
        let devices = paths("devices", self.devices, below("/dev"))?;
        let proc_mask = paths("proc_mask", self.proc_mask, below("/proc"))?;
        Ok(RootView { hide, keep, devices, proc_mask })
    }
}

/// Whether `path`, relative to the root, is spelled as the kernel prints it.
fn is_plain(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX
        && !path.contains('\0')
        && path
            .split('/')
            .all(|part| !matches!(part, "" | "." | "..") && part.len() <= NAME_BYTES_MAX)
}

fn paths(
    list: &'static str,
    groups: Vec<PathGroup>,
    fault_of: impl Fn(&str) -> Option<PathFault>,
) -> Result<Vec<String>, PathError> {
    let mut taken: Vec<String> = Vec::new();
    for PathGroup { paths, reason } in groups {
        for path in paths {
            let plain = path.strip_prefix('/').is_some_and(is_plain);
            let fault = if !plain {
                Some(PathFault::NotPlain)
            } else if reason.trim().is_empty() {
                Some(PathFault::NoReason)
            } else if taken.contains(&path) {
                Some(PathFault::Twice)
            } else {
                fault_of(&path)
            };
            if let Some(fault) = fault {
                return Err(PathError { list, path, fault });
            }
            taken.push(path);
        }
    }
    Ok(taken)
}

/// Whether the top-level directory of `path` is in [`SYSTEM`].
fn is_in_system(path: &str) -> bool {
    path.split('/').nth(1).is_some_and(|top| SYSTEM.contains(&top))
}

fn is_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.starts_with('/'))
}
