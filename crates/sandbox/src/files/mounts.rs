//! The mount points of this process, read again only after a change.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Larger than most tables: a small buffer takes one call for every few lines.
const TEXT_BYTES: usize = 16 << 10;

/// The mount table of the thread that opened it, from whose namespace sandboxes are cloned.
#[derive(Debug)]
pub struct MountTable(Mutex<LastRead>);

#[derive(Debug)]
struct LastRead {
    file: File,
    points: Arc<[PathBuf]>,
}

impl MountTable {
    /// Reads the table.
    pub fn open() -> io::Result<Self> {
        let mut file = File::open("/proc/thread-self/mountinfo")?;
        let points = read(&mut file)?;
        Ok(Self(Mutex::new(LastRead { file, points })))
    }

    /// All current mount points, sorted. Returns the same value until they change.
    pub fn points(&self) -> io::Result<Arc<[PathBuf]>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The kernel reports each change once, as POLLPRI.
        let mut changed = [PollFd::new(last.file.as_fd(), PollFlags::POLLPRI)];
        if poll(&mut changed, PollTimeout::ZERO)? > 0 {
            last.points = read(&mut last.file)?;
        }
        Ok(Arc::clone(&last.points))
    }
}

fn read(file: &mut File) -> io::Result<Arc<[PathBuf]>> {
    let mut text = Vec::with_capacity(TEXT_BYTES);
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(parse(&text).into())
}

/// Parses the mount points of a mountinfo text, sorted, each once.
fn parse(mountinfo: &[u8]) -> Vec<PathBuf> {
    let point = |line: &[u8]| Some(unescape(line.split(|byte| *byte == b' ').nth(4)?));
    let mut points: Vec<PathBuf> =
        mountinfo.split(|byte| *byte == b'\n').filter_map(point).collect();
    points.sort();
    points.dedup();
    points
}

/// Decodes the octal escapes of characters that would end a field or a line.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

/// The mount points below `tree`, none below another. A copy of the tree's own mount contains what
/// they hide.
pub fn topmost_below<'a>(points: &'a [PathBuf], tree: &Path) -> Vec<&'a Path> {
    let mut topmost: Vec<&Path> = Vec::new();
    for point in points.iter().filter(|point| *point != tree && point.starts_with(tree)) {
        if !topmost.iter().any(|above| point.starts_with(above)) {
            topmost.push(point);
        }
    }
    topmost
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &[u8] = b"\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 0:40 / /usr/share\\040x rw shared:1 - tmpfs t rw
41 40 0:41 / /usr/share\\040x/in rw - tmpfs t rw
42 27 0:42 / /usr rw - ext4 /dev/vdb rw
43 27 0:43 / /usrlocal rw - ext4 /dev/vdc rw
44 27 0:44 / /usr rw - tmpfs over rw
45 27 0:44 / /usr/\\134b\xff rw - tmpfs over rw
";

    #[test]
    fn escaped_mount_points_are_decoded() {
        let names = [
            &b"/"[..],
            b"/proc",
            b"/usr",
            b"/usr/\\b\xff",
            b"/usr/share x",
            b"/usr/share x/in",
            b"/usrlocal",
        ];
        assert_eq!(parse(MOUNTINFO), names.map(|name| PathBuf::from(OsStr::from_bytes(name))));
    }

    #[test]
    fn only_the_topmost_mount_points_below_a_tree_count() {
        let points = parse(MOUNTINFO);
        let below = topmost_below(&points, Path::new("/usr"));
        assert_eq!(below, [&points[3], &points[4]]);
        assert!(topmost_below(&points, Path::new("/usrlocal")).is_empty());
    }

    #[test]
    fn an_unchanged_table_is_not_read_again() {
        let table = MountTable::open().unwrap();
        let first = table.points().unwrap();
        assert!(first.iter().any(|point| point == Path::new("/")));
        // Other tests mount file systems now and then, but not between every two calls.
        let same = |_| Arc::ptr_eq(&table.points().unwrap(), &table.points().unwrap());
        assert!((0..100).any(same));
    }
}
