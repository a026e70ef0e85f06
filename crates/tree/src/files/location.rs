//! The path rule: which file of a workspace a path names.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::error::FilesError;
use cofferdam_core::weakened::{self, Wall};

/// The longest path, bytes: the kernel's `PATH_MAX` without the NUL.
pub(super) const PATH_BYTES_MAX: usize = 4095;
/// The longest name, bytes.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// The directories below which a workspace can be shown.
const SHOWN_BELOW: [&[u8]; 4] = [b"home", b"srv", b"mnt", b"data"];

/// One of the two directories of a workspace's file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileArea {
    /// The directory `workspace`, shown as `/workspace` or at another path.
    Workspace,
    /// The directory `tmp`, shown as `/tmp`.
    Tmp,
    /// The root of a separate tree. No path of a client names it.
    Whole,
}

impl FileArea {
    /// Its name below the root of the file system.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Tmp => "tmp",
            Self::Whole => ".",
        }
    }
}

/// A file of a workspace: the area, and a path in it without `.`, `..` and empty parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileLocation {
    area: FileArea,
    relative: PathBuf,
}

impl FileLocation {
    /// The top of `area`.
    pub fn top(area: FileArea) -> Self {
        Self { area, relative: PathBuf::new() }
    }

    /// The area.
    pub fn area(&self) -> FileArea {
        self.area
    }

    /// The path below the area's directory; empty for that directory itself.
    pub fn relative(&self) -> &Path {
        &self.relative
    }

    /// The path in answers: relative to the workspace (`.` is its top), or absolute below `/tmp`.
    pub fn shown(&self) -> PathBuf {
        match self.area {
            FileArea::Tmp => join(Path::new("/tmp"), &self.relative),
            _ if self.relative.as_os_str().is_empty() => PathBuf::from("."),
            FileArea::Workspace | FileArea::Whole => self.relative.clone(),
        }
    }

    /// The entry at `below`, a relative path.
    #[must_use]
    pub fn join(&self, below: &Path) -> Self {
        Self { area: self.area, relative: join(&self.relative, below) }
    }

    /// Whether this is `other` or lies in it.
    pub fn lies_in(&self, other: &Self) -> bool {
        self.area == other.area && self.relative.starts_with(&other.relative)
    }

    /// The path below the root of the file system.
    pub(super) fn path_in_root(&self) -> PathBuf {
        join(Path::new(self.area.name()), &self.relative)
    }

    /// The directory that contains it; `None` at the top of an area.
    pub(super) fn parent(&self) -> Option<Self> {
        let parent = self.relative.parent()?;
        Some(Self { area: self.area, relative: parent.to_owned() })
    }

    /// The last name; `None` at the top of an area.
    pub fn name(&self) -> Option<&OsStr> {
        self.relative.file_name()
    }

    /// The names, first to last.
    pub(super) fn parts(&self) -> impl Iterator<Item = &OsStr> {
        self.relative.iter()
    }
}

/// Joins without the trailing slash of `Path::join` with an empty path.
fn join(above: &Path, below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { above.to_owned() } else { above.join(below) }
}

/// Maps paths of clients and of links to locations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    /// The parts of the absolute path at which programs see the workspace.
    shown: Vec<Vec<u8>>,
}

impl Default for PathRule {
    /// The rule of a workspace shown as `/workspace`.
    fn default() -> Self {
        Self { shown: vec![b"workspace".to_vec()] }
    }
}

impl PathRule {
    /// The rule of a workspace shown at `path`: `/workspace`, or an absolute path below `/home`, `/srv`, `/mnt` or
    /// `/data` without `..`.
    ///
    /// # Errors
    /// [`FilesError::PathEscape`] for another path, [`FilesError::PathTooLong`] for a very long one.
    pub fn shown_at(path: &str) -> Result<Self, FilesError> {
        let bytes = path.as_bytes();
        check_length(bytes)?;
        let parts: Vec<Vec<u8>> = parts(bytes).map(<[u8]>::to_vec).collect();
        let below = parts.len() > 1 && SHOWN_BELOW.iter().any(|top| parts[0] == **top);
        let inside = below || parts == Self::default().shown;
        let plain = !bytes.contains(&0) && parts.iter().all(|part| part != b"..");
        if path.starts_with('/') && inside && plain {
            Ok(Self { shown: parts })
        } else {
            Err(escape(bytes))
        }
    }

    /// The absolute path at which programs see the workspace.
    pub fn shown_path(&self) -> PathBuf {
        absolute(&self.shown)
    }

    /// The absolute path at which programs see `location`.
    pub fn path_inside(&self, location: &FileLocation) -> PathBuf {
        match location.area {
            FileArea::Workspace => join(&self.shown_path(), &location.relative),
            FileArea::Tmp | FileArea::Whole => location.shown(),
        }
    }

    /// The location that `path` of a client names: relative to the workspace, or absolute below it
    /// or `/tmp`. `..` is resolved lexically.
    ///
    /// # Errors
    /// [`FilesError::PathEscape`] for a path that is empty, contains NUL, or leads elsewhere, and
    /// [`FilesError::PathTooLong`].
    pub fn locate(&self, path: &[u8]) -> Result<FileLocation, FilesError> {
        check_length(path)?;
        if path.is_empty() || path.contains(&0) {
            return Err(escape(path));
        }
        let mut reached: Vec<&[u8]> = Vec::new();
        if path.first() != Some(&b'/') {
            reached.extend(self.shown.iter().map(Vec::as_slice));
        }
        for part in parts(path) {
            if part == b".." {
                reached.pop();
            } else {
                reached.push(part);
            }
        }
        match self.area_of(&reached) {
            None if weakened::lacks(Wall::Paths) => {
                let relative = PathBuf::from(OsString::from_vec(join_parts(&reached)));
                Ok(FileLocation { area: FileArea::Workspace, relative })
            }
            located => located.ok_or_else(|| escape(path)),
        }
    }

    /// The location of an absolute path inside the sandbox, without `.` and `..`.
    pub(super) fn area_of<P: AsRef<[u8]>>(&self, absolute: &[P]) -> Option<FileLocation> {
        let areas = [
            (FileArea::Workspace, self.shown.len(), is_prefix(&self.shown, absolute)),
            (FileArea::Tmp, 1, is_prefix(&[b"tmp"], absolute)),
            (FileArea::Workspace, 1, is_prefix(&[b"workspace"], absolute)),
        ];
        let (area, length, _) = areas.into_iter().find(|(_, _, below)| *below)?;
        let relative = join_parts(absolute.get(length..)?);
        Some(FileLocation { area, relative: PathBuf::from(OsString::from_vec(relative)) })
    }

    /// Whether `absolute` is a directory above the workspace or `/tmp`.
    pub(super) fn is_above<P: AsRef<[u8]>>(&self, absolute: &[P]) -> bool {
        absolute.len() < self.shown.len() && is_prefix(absolute, &self.shown)
    }

    /// The parts of the absolute path of `location` inside the sandbox.
    pub(super) fn parts_inside(&self, location: &FileLocation) -> Vec<Vec<u8>> {
        let mut parts = match location.area {
            FileArea::Workspace => self.shown.clone(),
            FileArea::Tmp => vec![b"tmp".to_vec()],
            FileArea::Whole => Vec::new(),
        };
        parts.extend(location.parts().map(|part| part.as_bytes().to_vec()));
        parts
    }
}

/// The parts of `path` without empty ones and `.`.
pub(super) fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."))
}

fn check_length(path: &[u8]) -> Result<(), FilesError> {
    let fits = path.len() <= PATH_BYTES_MAX && parts(path).all(|part| part.len() <= NAME_BYTES_MAX);
    if fits {
        return Ok(());
    }
    let start = path.get(..NAME_BYTES_MAX).unwrap_or(path);
    Err(FilesError::PathTooLong { path: Path::new(OsStr::from_bytes(start)).join("…") })
}

fn escape(path: &[u8]) -> FilesError {
    FilesError::PathEscape { path: PathBuf::from(OsStr::from_bytes(path)) }
}

fn is_prefix<P: AsRef<[u8]>, Q: AsRef<[u8]>>(prefix: &[P], path: &[Q]) -> bool {
    prefix.len() <= path.len()
        && prefix.iter().zip(path).all(|(one, other)| one.as_ref() == other.as_ref())
}

fn join_parts<P: AsRef<[u8]>>(parts: &[P]) -> Vec<u8> {
    parts.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(&b'/')
}

fn absolute(parts: &[Vec<u8>]) -> PathBuf {
    Path::new("/").join(OsString::from_vec(join_parts(parts)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(rule: &PathRule, path: &str) -> Option<String> {
        match rule.locate(path.as_bytes()) {
            Ok(location) => Some(location.path_in_root().to_str().unwrap().to_owned()),
            Err(FilesError::PathEscape { .. }) => None,
            Err(error) => panic!("{path:?}: {error}"),
        }
    }

    #[test]
    fn a_path_is_relative_to_the_workspace_or_absolute_below_it_or_tmp() {
        let rule = PathRule::default();
        for (path, expected) in [
            ("a", Some("workspace/a")),
            ("a/./b//c/", Some("workspace/a/b/c")),
            (".", Some("workspace")),
            ("./", Some("workspace")),
            ("a/..", Some("workspace")),
            ("a/../b", Some("workspace/b")),
            ("..a", Some("workspace/..a")),
            ("/workspace", Some("workspace")),
            ("/workspace/", Some("workspace")),
            ("//workspace//a", Some("workspace/a")),
            ("/workspace/a/../../tmp/x", Some("tmp/x")),
            ("/tmp", Some("tmp")),
            ("/tmp/home/x", Some("tmp/home/x")),
            ("workspace/a", Some("workspace/workspace/a")),
            ("tmp/a", Some("workspace/tmp/a")),
            ("", None),
            ("/", None),
            ("..", None),
            ("../x", None),
            ("a/../../x", None),
            ("/etc/passwd", None),
            ("/workspacex/a", None),
            ("/workspace/../etc/passwd", None),
            ("/tmpx", None),
            ("/tmp/../etc", None),
            ("../../../../etc/passwd", None),
            ("/proc/self/root/workspace/a", None),
            ("a\0b", None),
            ("/home/agent/a", None),
        ] {
            assert_eq!(located(&rule, path).as_deref(), expected, "{path:?}");
        }
    }

    #[test]
    fn a_workspace_shown_elsewhere_keeps_its_other_name() {
        let rule = PathRule::shown_at("/home/agent/").unwrap();
        for (path, expected) in [
            ("a", Some("workspace/a")),
            ("/home/agent/a", Some("workspace/a")),
            ("/workspace/a", Some("workspace/a")),
            ("../agent/a", Some("workspace/a")),
            ("../../tmp/a", Some("tmp/a")),
            ("/home/agent2", None),
            ("/home", None),
            ("../other", None),
        ] {
            assert_eq!(located(&rule, path).as_deref(), expected, "{path:?}");
        }
        let inside = rule.path_inside(&rule.locate(b"/workspace/x").unwrap());
        assert_eq!(inside, Path::new("/home/agent/x"));
        assert_eq!(rule.path_inside(&rule.locate(b".").unwrap()), Path::new("/home/agent"));
        assert_eq!(rule.path_inside(&rule.locate(b"/tmp/x").unwrap()), Path::new("/tmp/x"));
    }

    #[test]
    fn a_workspace_is_shown_only_where_nothing_of_the_system_is() {
        for path in ["/workspace", "/home/a", "/srv/a/b", "/mnt/x", "/data/x", "/data//x/"] {
            assert!(PathRule::shown_at(path).is_ok(), "{path}");
        }
        for path in
            ["", "/", "/home", "/home/", "home/a", "/etc/x", "/tmp/x", "/home/../etc", "/data/\0"]
        {
            assert!(PathRule::shown_at(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_path_longer_than_the_kernel_takes_is_refused_by_name() {
        let rule = PathRule::default();
        for path in ["x".repeat(256), "x/".repeat(2048)] {
            let refused = rule.locate(path.as_bytes());
            assert!(matches!(refused, Err(FilesError::PathTooLong { .. })), "{refused:?}");
        }
        assert!(rule.locate("x".repeat(255).as_bytes()).is_ok());
    }

    #[test]
    fn answers_show_a_path_as_a_client_can_send_it() {
        let rule = PathRule::default();
        for (path, shown) in
            [("/workspace/a/b", "a/b"), (".", "."), ("/tmp", "/tmp"), ("/tmp/a", "/tmp/a")]
        {
            let location = rule.locate(path.as_bytes()).unwrap();
            assert_eq!(location.shown(), Path::new(shown));
            let again = rule.locate(location.shown().as_os_str().as_bytes()).unwrap();
            assert_eq!(again, location);
        }
    }

    proptest::proptest! {
        #[test]
        fn a_located_path_never_leaves_its_area(path in r"(/|\.|\.\.|a|tmp|workspace){0,12}") {
            let rule = PathRule::shown_at("/home/a").unwrap();
            if let Ok(location) = rule.locate(path.as_bytes()) {
                let text = location.path_in_root();
                proptest::prop_assert!(text.iter().all(|part| part != ".." && part != "."));
                proptest::prop_assert!(text.starts_with("workspace") || text.starts_with("tmp"));
            }
        }
    }
}
