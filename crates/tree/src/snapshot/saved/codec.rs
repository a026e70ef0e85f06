//! Entries as bytes, numbers in little-endian order. A path is what it shares with the one before, and the
//! rest: a deep tree takes no more than its names.

use std::io::{self, Read};

use super::entry::{
    EXTENT_BYTES_MAX, EntryKind, EntryOwner, EntryTime, Extent, FileState, SavedEntry, SavedFile,
};

/// The longest part of a path that is read at once: a name and its slash.
const REST_BYTES_MAX: u32 = 64 << 10;
/// The longest text of a link that Linux has.
const TARGET_BYTES_MAX: u32 = 4096;
/// Ends a manifest.
const END: u8 = b'E';

/// Appends `entry`, which comes after one with the path `before`.
pub(super) fn encode(entry: &SavedEntry, before: &[u8], out: &mut Vec<u8>) {
    let kind = match &entry.kind {
        EntryKind::Directory => b'd',
        EntryKind::File(_) => b'f',
        EntryKind::HardLink { .. } => b'h',
        EntryKind::SymbolicLink { .. } => b'l',
        EntryKind::Fifo => b'p',
    };
    let shared = entry.path.iter().zip(before).take_while(|(one, other)| one == other).count();
    out.push(kind);
    out.push(match entry.owner {
        EntryOwner::Tenant => b't',
        EntryOwner::Root => b'r',
    });
    out.extend(entry.mode.to_le_bytes());
    encode_time(entry.modified, out);
    out.extend(length(shared).to_le_bytes());
    encode_bytes(entry.path.get(shared..).unwrap_or_default(), out);
    match &entry.kind {
        EntryKind::Directory | EntryKind::Fifo => {}
        EntryKind::HardLink { group } => out.extend(group.to_le_bytes()),
        EntryKind::SymbolicLink { target } => encode_bytes(target, out),
        EntryKind::File(file) => {
            out.extend(file.bytes.to_le_bytes());
            out.extend(file.group.to_le_bytes());
            out.extend(file.state.inode.to_le_bytes());
            encode_time(file.state.changed, out);
            out.extend(length(file.extents.len()).to_le_bytes());
            for extent in &file.extents {
                out.extend(extent.offset.to_le_bytes());
                out.extend(extent.bytes.to_le_bytes());
                out.extend(extent.digest);
            }
        }
    }
}

/// Appends the mark of the end.
pub(super) fn encode_end(out: &mut Vec<u8>) {
    out.push(END);
}

/// Reads the entry after one with the path `before`; `None` at the mark of the end.
pub(super) fn decode(input: &mut impl Read, before: &[u8]) -> io::Result<Option<SavedEntry>> {
    let [kind] = array(input)?;
    if kind == END {
        return Ok(None);
    }
    let owner = match array(input)? {
        [b't'] => EntryOwner::Tenant,
        [b'r'] => EntryOwner::Root,
        _ => return Err(damaged("owner")),
    };
    let mode = u16::from_le_bytes(array(input)?);
    let modified = decode_time(input)?;
    let shared = u32::from_le_bytes(array(input)?) as usize;
    let mut path = before.get(..shared).ok_or_else(|| damaged("path"))?.to_vec();
    path.extend(decode_bytes(input, REST_BYTES_MAX)?);
    let kind = match kind {
        b'd' => EntryKind::Directory,
        b'p' => EntryKind::Fifo,
        b'h' => EntryKind::HardLink { group: u64::from_le_bytes(array(input)?) },
        b'l' => EntryKind::SymbolicLink { target: decode_bytes(input, TARGET_BYTES_MAX)? },
        b'f' => EntryKind::File(decode_file(input)?),
        _ => return Err(damaged("kind")),
    };
    Ok(Some(SavedEntry { path, owner, mode, modified, kind }))
}

fn decode_file(input: &mut impl Read) -> io::Result<SavedFile> {
    let bytes = u64::from_le_bytes(array(input)?);
    let group = u64::from_le_bytes(array(input)?);
    let inode = u64::from_le_bytes(array(input)?);
    let state = FileState { inode, changed: decode_time(input)? };
    let count = u32::from_le_bytes(array(input)?);
    let mut file = SavedFile { bytes, group, state, extents: Vec::new() };
    let mut end = 0;
    for _ in 0..count {
        let offset = u64::from_le_bytes(array(input)?);
        let extent =
            Extent { offset, bytes: u32::from_le_bytes(array(input)?), digest: array(input)? };
        let fits = offset >= end && extent.bytes as usize <= EXTENT_BYTES_MAX;
        end = offset.checked_add(extent.bytes.into()).ok_or_else(|| damaged("extent"))?;
        if !fits || end > bytes {
            return Err(damaged("extent"));
        }
        file.extents.push(extent);
    }
    Ok(file)
}

fn encode_time(time: EntryTime, out: &mut Vec<u8>) {
    out.extend(time.seconds.to_le_bytes());
    out.extend(time.nanoseconds.to_le_bytes());
}

fn decode_time(input: &mut impl Read) -> io::Result<EntryTime> {
    let seconds = i64::from_le_bytes(array(input)?);
    Ok(EntryTime { seconds, nanoseconds: u32::from_le_bytes(array(input)?) })
}

fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(length(bytes.len()).to_le_bytes());
    out.extend(bytes);
}

fn decode_bytes(input: &mut impl Read, bytes_max: u32) -> io::Result<Vec<u8>> {
    let length = u32::from_le_bytes(array(input)?);
    if length > bytes_max {
        return Err(damaged("length"));
    }
    let mut bytes = vec![0; length as usize];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Lengths here are far below 4 GiB: the kernel limits names and the disk limits extents.
fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// The error that a manifest is not what was written.
pub(super) fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the manifest is damaged: {what}"))
}
