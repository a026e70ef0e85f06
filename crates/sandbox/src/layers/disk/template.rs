//! Images that are copies of an earlier one. A copy takes a fraction of the time that mkfs takes, since what the new
//! image has beyond its limit is taken in the earlier one already.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use crate::layers::space::DiskSpace;

/// How many kinds of images are remembered. Each template has a few MiB.
const KINDS_MAX: usize = 8;
/// What is copied at once.
const PIECE_BYTES: usize = 256 << 10;
/// Where ext4 has its superblock.
const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 1024;
/// Fields of the superblock. The last one is the checksum of all before it.
const UUID: std::ops::Range<usize> = 0x68..0x78;
const CHECKSUM: usize = 0x3FC;
/// CRC-32C, reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The images of which others are copies, the last used at the end.
#[derive(Debug, Default)]
pub(super) struct ImageTemplates(Mutex<Vec<(DiskSpace, Template)>>);

/// What there is for images of one size.
#[derive(Debug, Clone)]
enum Template {
    /// One image was made.
    Wanted,
    /// A thread makes it.
    Making,
    /// Copies are made of this one.
    Made(Arc<File>),
    /// It cannot be had on this host.
    Impossible,
}

impl ImageTemplates {
    /// The template of images with room for `room`, which `make` makes when the second of them is asked for. Most sizes
    /// are asked for once.
    pub(super) fn of(
        &self,
        room: DiskSpace,
        make: impl FnOnce() -> io::Result<File>,
    ) -> Option<Arc<File>> {
        match self.known(room) {
            None | Some(Template::Making | Template::Impossible) => None,
            Some(Template::Made(image)) => Some(image),
            Some(Template::Wanted) => match make() {
                Ok(image) => {
                    let image = Arc::new(image);
                    self.set(room, Template::Made(Arc::clone(&image)));
                    Some(image)
                }
                Err(error) => {
                    log::warn!("images are made one by one: {error}");
                    self.set(room, Template::Impossible);
                    None
                }
            },
        }
    }

    /// What there was, used now. Who is told that a template is wanted makes it.
    fn known(&self, room: DiskSpace) -> Option<Template> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kinds.iter().position(|(known, _)| *known == room) {
            let (_, template) = kinds.remove(at);
            let next = match &template {
                Template::Wanted => Template::Making,
                other => other.clone(),
            };
            kinds.push((room, next));
            return Some(template);
        }
        if kinds.len() >= KINDS_MAX {
            kinds.remove(0);
        }
        kinds.push((room, Template::Wanted));
        None
    }

    fn set(&self, room: DiskSpace, template: Template) {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = kinds.iter_mut().find(|(known, _)| *known == room) {
            *known = template;
        }
    }
}

/// Makes the empty file `image` a copy of `template` with an identity of its own: the kernel tells file systems apart
/// by it.
pub(super) fn copy(template: &File, image: &File) -> io::Result<()> {
    let end = template.metadata()?.len();
    image.set_len(end)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while let Some(data) = next(template, at, Whence::SeekData)? {
        at = next(template, data, Whence::SeekHole)?.unwrap_or(end);
        let mut from = data;
        while from < at {
            let length = usize::try_from(at - from).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let Some(part) = piece.get_mut(..length) else { break };
            template.read_exact_at(part, from)?;
            image.write_all_at(part, from)?;
            from += length as u64;
        }
    }
    let mut superblock = [0; SUPERBLOCK_BYTES];
    image.read_exact_at(&mut superblock, SUPERBLOCK)?;
    let mut uuid = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut uuid)?;
    identify(&mut superblock, uuid);
    image.write_all_at(&superblock, SUPERBLOCK)
}

/// Where data or a hole begins at or after `from`. None if there is no more.
fn next(file: &File, from: u64, what: Whence) -> io::Result<Option<u64>> {
    let from = i64::try_from(from).map_err(io::Error::other)?;
    match lseek(file, from, what) {
        Ok(at) => u64::try_from(at).map(Some).map_err(io::Error::other),
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the file system of `superblock` the identity `uuid`. Its other checksums begin with a value of its own, not
/// with that.
fn identify(superblock: &mut [u8; SUPERBLOCK_BYTES], uuid: [u8; 16]) {
    superblock[UUID].copy_from_slice(&uuid);
    let checksum = crc32c(&superblock[..CHECKSUM]);
    superblock[CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
}

/// As ext4 computes it: without the inversion at the end.
fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: DiskSpace = DiskSpace { bytes: 1 << 20, inodes: 10 };

    #[test]
    fn the_checksum_is_crc_32c() {
        // The check value of the algorithm's catalogue, inverted.
        assert_eq!(crc32c(b"123456789"), !0xE306_9283);
    }

    #[test]
    fn a_template_is_made_for_the_second_image_of_a_size() {
        let templates = ImageTemplates::default();
        let make = || tempfile::tempfile();
        assert!(templates.of(ROOM, make).is_none());
        let first = templates.of(ROOM, make).unwrap();
        assert!(Arc::ptr_eq(&first, &templates.of(ROOM, || unreachable!()).unwrap()));
        let other = |bytes| DiskSpace { bytes, ..ROOM };
        for bytes in 0..u64::try_from(KINDS_MAX).unwrap() {
            assert!(templates.of(other(bytes), make).is_none());
        }
        assert!(templates.of(ROOM, make).is_none(), "the oldest is forgotten");
        let impossible = || Err(io::ErrorKind::Unsupported.into());
        assert!(templates.of(ROOM, impossible).is_none());
        assert!(templates.of(ROOM, || unreachable!()).is_none());
    }

    #[test]
    fn a_copy_has_the_same_data_at_the_same_places() {
        let (template, image) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        template.set_len(64 << 20).unwrap();
        for at in [0, 1 << 20, 40 << 20] {
            template.write_all_at(&vec![7; PIECE_BYTES + 5], at).unwrap();
        }
        copy(&template, &image).unwrap();
        let read = |file: &File| {
            let mut whole = vec![0; 64 << 20];
            file.read_exact_at(&mut whole, 0).unwrap();
            // The superblock is its own.
            whole.drain(1024..2048);
            whole
        };
        assert!(read(&template) == read(&image));
        let blocks = std::os::unix::fs::MetadataExt::blocks(&image.metadata().unwrap());
        assert!(blocks * 512 < 4 << 20, "{blocks} blocks");
    }
}
