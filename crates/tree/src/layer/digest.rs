//! The digest of a tree, as it is seen.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};
use sha2::{Digest, Sha256};

use crate::copy::copy_file::{BUFFER_BYTES, data_after};
use crate::error::{During, WorkspaceError, WorkspaceFault};
use crate::status;
use crate::walk::open_beneath;
use crate::walk::stop_check::StopCheck;
use crate::walk::{TreeWalk, WalkEvent, as_path};

/// Names this form of a digest; another form gets another number.
const FORM: &[u8] = b"cofferdam tree 2\0";
/// The unit in which contents are digested. One of zeros counts as a hole, whether it is one or not.
const DIGEST_BLOCK_BYTES: usize = 4096;
const BLOCK: u64 = DIGEST_BLOCK_BYTES as u64;
const ZERO_BLOCK: [u8; DIGEST_BLOCK_BYTES] = [0; DIGEST_BLOCK_BYTES];
/// Ends the blocks of a file: no block begins there.
const BLOCKS_END: u64 = u64::MAX;

/// What a tree holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeDigest {
    /// The SHA-256 over paths, kinds, modes, contents and the texts of links.
    pub sha256: [u8; 32],
    /// Regular files.
    pub files: u64,
    /// Bytes of regular files, holes included.
    pub bytes: u64,
}

impl TreeDigest {
    /// The digest as 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.sha256.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Digests everything below `root` but its directory `hidden`. Owners, times, extended attributes and the places
/// of holes do not count. A hole costs nothing, however long it is.
pub fn digest_tree(
    root: BorrowedFd<'_>,
    hidden: Option<&CStr>,
    stop: StopCheck<'_>,
) -> Result<TreeDigest, WorkspaceError> {
    let walk = TreeWalk::to_choose(root, u64::MAX).during("list");
    let mut walk = walk.map_err(|fault| fault.at("."))?;
    let mut digest =
        Digester { hash: Sha256::new(), stop, files: 0, bytes: 0, buffer: vec![0; BUFFER_BYTES] };
    digest.hash.update(FORM);
    let mut is_hidden = false;
    while let Some(event) = walk.advance()? {
        match &event {
            WalkEvent::Enter { name, .. }
                if Some(name.as_c_str()) == hidden && walk.path().iter().count() == 1 =>
            {
                walk.pass_over();
                is_hidden = true;
                continue;
            }
            WalkEvent::Leave { .. } if is_hidden => {
                is_hidden = false;
                continue;
            }
            _ => {}
        }
        let name = match &event {
            WalkEvent::Enter { name, .. }
            | WalkEvent::Leave { name }
            | WalkEvent::Entry { name, .. }
            | WalkEvent::Unopened { name, .. } => name.clone(),
        };
        let taken = digest.take(walk.directory(), &event);
        taken.map_err(|fault| fault.at(walk.path().join(as_path(&name))))?;
    }
    let Digester { hash, files, bytes, .. } = digest;
    Ok(TreeDigest { sha256: hash.finalize().into(), files, bytes })
}

struct Digester<'calls> {
    hash: Sha256,
    stop: StopCheck<'calls>,
    files: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

impl Digester<'_> {
    /// Each entry begins with its kind and name, and each directory ends with a mark, so that no two
    /// trees give the same bytes.
    fn take(&mut self, parent: BorrowedFd<'_>, event: &WalkEvent) -> Result<(), WorkspaceFault> {
        self.stop.check()?;
        match event {
            WalkEvent::Enter { name, stat } => self.head(b"d", name, stat),
            WalkEvent::Leave { .. } => self.hash.update(b"."),
            WalkEvent::Unopened { errno, .. } => return Err(*errno).during("open"),
            WalkEvent::Entry { name, .. } => {
                let stat = fstatat(parent, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
                let stat = stat.during("stat")?;
                match status::file_type(&stat) {
                    SFlag::S_IFREG => {
                        self.head(b"f", name, &stat);
                        self.contents(parent, name)?;
                    }
                    SFlag::S_IFLNK => {
                        self.head(b"l", name, &stat);
                        let text = readlinkat(parent, name.as_c_str()).during("readlink")?;
                        self.hash.update(text.as_bytes());
                        self.hash.update([0]);
                    }
                    SFlag::S_IFIFO => self.head(b"p", name, &stat),
                    SFlag::S_IFSOCK => self.head(b"s", name, &stat),
                    SFlag::S_IFBLK => self.head(b"b", name, &stat),
                    _ => self.head(b"c", name, &stat),
                }
            }
        }
        Ok(())
    }

    fn head(&mut self, kind: &[u8], name: &CStr, stat: &FileStat) {
        self.hash.update(kind);
        self.hash.update(name.to_bytes_with_nul());
        self.hash.update((stat.st_mode & 0o7777).to_be_bytes());
    }

    /// A file gives its length, and the places and contents of its blocks that are not all zeros.
    fn contents(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), WorkspaceFault> {
        let file = open_beneath::open_for_reading_quietly(parent, name).during("open")?;
        let length = fstat(&file).during("stat")?.st_size;
        self.hash.update(bytes_of(length).to_be_bytes());
        let file = File::from(file);
        let mut at = 0;
        while let Some((start, end)) = data_after(&file, at, length)? {
            // Data of other file systems may begin and end within a block.
            let start = bytes_of(start) / BLOCK * BLOCK;
            let end = bytes_of(end).next_multiple_of(BLOCK).min(bytes_of(length));
            self.blocks(&file, start, end)?;
            at = i64::try_from(end).unwrap_or(length);
        }
        self.hash.update(BLOCKS_END.to_be_bytes());
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes_of(length));
        Ok(())
    }

    /// Takes the blocks from `start` on, where one begins, to `end`.
    fn blocks(&mut self, file: &File, start: u64, end: u64) -> Result<(), WorkspaceFault> {
        let mut at = start;
        while at < end {
            self.stop.check()?;
            let wanted = usize::try_from(end - at).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
            let buffer = self.buffer.get_mut(..wanted).unwrap_or_default();
            file.read_exact_at(buffer, at).during("read")?;
            for block in buffer.chunks(DIGEST_BLOCK_BYTES) {
                if !ZERO_BLOCK.starts_with(block) {
                    self.hash.update(at.to_be_bytes());
                    self.hash.update(block);
                }
                at += block.len() as u64;
            }
        }
        Ok(())
    }
}

fn bytes_of(length: i64) -> u64 {
    u64::try_from(length).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::os::fd::AsFd;
    use std::path::Path;

    use proptest::prelude::*;
    use proptest::test_runner::Config;

    use super::*;
    use crate::testing::{directory, in_memory};

    fn digest(root: &Path) -> TreeDigest {
        digest_tree(directory(root).as_fd(), None, StopCheck::never()).unwrap()
    }

    /// A file of `length` bytes, which has these bytes at these places.
    fn sparse(path: &Path, length: u64, pieces: &[(u64, &[u8])]) {
        let file = File::create(path).unwrap();
        file.set_len(length).unwrap();
        for (offset, piece) in pieces {
            file.write_all_at(piece, *offset).unwrap();
        }
    }

    #[test]
    fn files_as_large_as_the_kernel_has_them_cost_their_data_only() {
        let place = in_memory();
        let length = i64::MAX as u64;
        let pieces: [(u64, &[u8]); 3] = [(0, b"first"), (1 << 40, b"in it"), (length - 1, b"l")];
        for name in ["a", "b", "c"] {
            sparse(&place.path().join(name), length, &pieces);
        }
        let checks = Cell::new(0);
        let stop = || {
            checks.set(checks.get() + 1);
            false
        };
        let whole = digest_tree(directory(place.path()).as_fd(), None, StopCheck(&stop)).unwrap();
        assert_eq!((whole.files, whole.bytes), (3, u64::MAX), "the sum is not more than it can be");
        assert!(checks.get() < 50, "{} pieces", checks.get());
        sparse(&place.path().join("b"), length, &[pieces[0], (1 << 41, b"in it"), pieces[2]]);
        assert_ne!(digest(place.path()).sha256, whole.sha256, "a piece lies elsewhere");
        sparse(&place.path().join("b"), length - 1, &pieces[..2]);
        assert_ne!(digest(place.path()).sha256, whole.sha256, "the end is another one");
    }

    proptest! {
        #![proptest_config(Config { cases: 100, failure_persistence: None, ..Config::default() })]

        #[test]
        fn equal_contents_have_equal_digests_wherever_their_holes_are(
            length in 0..40_000_u64,
            pieces in proptest::collection::vec((0..40_000_u64, 0..9_000_usize, 0..3_u8), 0..5),
            changed in 0..40_000_u64,
        ) {
            let [dense, holed] = [in_memory(), in_memory()];
            let mut contents = vec![0; usize::try_from(length).unwrap()];
            let file = File::create(holed.path().join("f")).unwrap();
            for (offset, count, byte) in pieces {
                let end = (offset + count as u64).min(length);
                let count = usize::try_from(end.saturating_sub(offset)).unwrap();
                file.write_all_at(&vec![byte; count], offset).unwrap();
                let start = usize::try_from(offset.min(length)).unwrap();
                contents[start..start + count].fill(byte);
            }
            file.set_len(length).unwrap();
            fs::write(dense.path().join("f"), &contents).unwrap();
            let before = digest(dense.path());
            prop_assert_eq!(&digest(holed.path()), &before);
            if changed < length {
                file.write_all_at(&[9], changed).unwrap();
                prop_assert_ne!(digest(holed.path()).sha256, before.sha256);
            }
        }
    }
}
