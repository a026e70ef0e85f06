//! The mount points of this process, read again only when they have changed.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// More than most tables have: a small buffer takes a call for each few lines.
const TEXT_BYTES: usize = 16 << 10;

/// The mount namespace of the thread that opened it, from which boxes are cloned.
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

    /// Every mount point there is now, sorted. The same value while nothing has changed.
    pub fn points(&self) -> io::Result<Arc<[PathBuf]>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The kernel tells of each change once, by an error condition.
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

/// The mount points of a mountinfo text, sorted, each once.
fn parse(mountinfo: &[u8]) -> Vec<PathBuf> {
    let point = |line: &[u8]| Some(unescape(line.split(|byte| *byte == b' ').nth(4)?));
    let mut points: Vec<PathBuf> =
        mountinfo.split(|byte| *byte == b'\n').filter_map(point).collect();
    points.sort();
    points.dedup();
    points
}

/// Undoes the octal escapes of what would end a field or a line.
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

/// The mount points below `tree`, none below another: what a copy of the tree's
/// own mount has in place of is what they hide.
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
    fn mount_points_are_read_as_they_are_called() {
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
    fn only_what_is_mounted_right_below_a_tree_is_below_it() {
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
        // Other tests mount things now and then, though hardly at every look.
        let same = |_| Arc::ptr_eq(&table.points().unwrap(), &table.points().unwrap());
        assert!((0..100).any(same));
    }
}
