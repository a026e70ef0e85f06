//! The stream format of directory trees on a drive. Pure.
//!
//! Entries have names, not paths: records enter and leave directories, so a stream cannot refer to
//! anything outside its tree. All numbers are big-endian.

use std::io::{self, Read, Write};

/// The first bytes of every stream.
const MAGIC: &[u8; 8] = b"CFDTREE1";
/// The longest name, bytes: the kernel's `NAME_MAX`.
pub const NAME_BYTES_MAX: usize = 255;
/// The longest link text, bytes.
const LINK_BYTES_MAX: usize = 4095;
/// The most contents of a record, bytes.
pub const DATA_BYTES_MAX: usize = 256 * 1024;
/// Nanoseconds per second.
const NANOS: u32 = 1_000_000_000;
/// The most bytes of an entry besides its name, link text and contents, including both records of a
/// directory.
pub const ENTRY_BYTES_MAX: u64 = 64;

/// A modification time, since the epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Modified {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds, less than a second.
    pub nanoseconds: u32,
}

/// One record of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveRecord {
    /// A directory. The following records are in it.
    Enter {
        /// Its name.
        name: Vec<u8>,
        /// Its permission bits.
        mode: u16,
        /// Its time, which is set when it is left.
        modified: Modified,
    },
    /// The end of the directory that was entered last.
    Leave,
    /// A regular file. Its contents follow, without holes.
    File {
        /// Its name.
        name: Vec<u8>,
        /// Its permission bits.
        mode: u16,
        /// Its time.
        modified: Modified,
        /// Its length in bytes, including holes.
        bytes: u64,
    },
    /// Contents of the last file.
    Data {
        /// Their offset in the file.
        offset: u64,
        /// At most [`DATA_BYTES_MAX`] bytes.
        contents: Vec<u8>,
    },
    /// A symbolic link.
    Link {
        /// Its name.
        name: Vec<u8>,
        /// Its text.
        target: Vec<u8>,
    },
    /// Any other entry, with its name only.
    Other {
        /// The name.
        name: Vec<u8>,
    },
    /// The end of the tree.
    End,
}

/// Why a stream is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The stream is incomplete.
    #[error("cut off")]
    CutOff,
    /// The stream has a record that the writer never writes.
    #[error("malformed: {0}")]
    Malformed(&'static str),
}

/// Writes records.
#[derive(Debug)]
pub struct ArchiveWriter<W>(W);

impl<W: Write> ArchiveWriter<W> {
    /// Writes the start of a stream.
    pub fn begin(mut target: W) -> io::Result<Self> {
        target.write_all(MAGIC)?;
        Ok(Self(target))
    }

    /// Writes a record.
    pub fn write(&mut self, record: &ArchiveRecord) -> Result<(), ArchiveError> {
        let mut head = Vec::new();
        let tail: &[u8] = match record {
            ArchiveRecord::Enter { name, mode, modified } => {
                head.push(b'D');
                put_attributes(&mut head, *mode, *modified);
                put_name(&mut head, name)?;
                &[]
            }
            ArchiveRecord::Leave => {
                head.push(b'U');
                &[]
            }
            ArchiveRecord::File { name, mode, modified, bytes } => {
                head.push(b'F');
                put_attributes(&mut head, *mode, *modified);
                head.extend(bytes.to_be_bytes());
                put_name(&mut head, name)?;
                &[]
            }
            ArchiveRecord::Data { offset, contents } => {
                let bytes = u32::try_from(contents.len()).unwrap_or(u32::MAX);
                if contents.len() > DATA_BYTES_MAX {
                    return Err(ArchiveError::Malformed("too much in one record"));
                }
                head.push(b'X');
                head.extend(offset.to_be_bytes());
                head.extend(bytes.to_be_bytes());
                contents
            }
            ArchiveRecord::Link { name, target } => {
                let bytes = u16::try_from(target.len()).unwrap_or(u16::MAX);
                if target.is_empty() || target.len() > LINK_BYTES_MAX {
                    return Err(ArchiveError::Malformed("the text of a link"));
                }
                head.push(b'L');
                put_name(&mut head, name)?;
                head.extend(bytes.to_be_bytes());
                target
            }
            ArchiveRecord::Other { name } => {
                head.push(b'O');
                put_name(&mut head, name)?;
                &[]
            }
            ArchiveRecord::End => {
                head.push(b'E');
                &[]
            }
        };
        self.0.write_all(&head)?;
        self.0.write_all(tail)?;
        Ok(())
    }

    /// Returns the target.
    pub fn into_inner(self) -> W {
        self.0
    }
}

fn put_attributes(head: &mut Vec<u8>, mode: u16, modified: Modified) {
    head.extend((mode & 0o777).to_be_bytes());
    head.extend(modified.seconds.to_be_bytes());
    head.extend(modified.nanoseconds.min(NANOS - 1).to_be_bytes());
}

fn put_name(head: &mut Vec<u8>, name: &[u8]) -> Result<(), ArchiveError> {
    let length = u8::try_from(name.len()).map_err(|_| ArchiveError::Malformed("a name"))?;
    check_name(name)?;
    head.push(length);
    head.extend(name);
    Ok(())
}

/// Checks that `name` is a single name that does not lead elsewhere.
fn check_name(name: &[u8]) -> Result<(), ArchiveError> {
    let is_name = !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| b"/\0".contains(b));
    if is_name { Ok(()) } else { Err(ArchiveError::Malformed("a name")) }
}

/// Reads and validates records: directories are left as often as they are entered, and contents
/// follow their file in order and end within it.
#[derive(Debug)]
pub struct ArchiveReader<R> {
    source: R,
    depth: u64,
    /// The least offset of the next contents of the last file, and its length.
    file: Option<(u64, u64)>,
}

impl<R: Read> ArchiveReader<R> {
    /// Reads the start of a stream.
    pub fn begin(mut source: R) -> Result<Self, ArchiveError> {
        let magic = take::<8>(&mut source)?;
        if magic != *MAGIC {
            return Err(ArchiveError::Malformed("not a tree"));
        }
        Ok(Self { source, depth: 0, file: None })
    }

    /// Reads the next record. No record follows [`ArchiveRecord::End`].
    pub fn read(&mut self) -> Result<ArchiveRecord, ArchiveError> {
        let [kind] = take::<1>(&mut self.source)?;
        if kind != b'X' {
            self.file = None;
        }
        match kind {
            b'D' => self.enter(),
            b'U' => self.leave(),
            b'F' => self.file(),
            b'X' => self.data(),
            b'L' => self.link(),
            b'O' => Ok(ArchiveRecord::Other { name: self.name()? }),
            b'E' if self.depth == 0 => Ok(ArchiveRecord::End),
            b'E' => Err(ArchiveError::Malformed("an end inside a directory")),
            _ => Err(ArchiveError::Malformed("unknown kind of record")),
        }
    }

    fn enter(&mut self) -> Result<ArchiveRecord, ArchiveError> {
        let (mode, modified) = self.attributes()?;
        let name = self.name()?;
        self.depth += 1;
        Ok(ArchiveRecord::Enter { name, mode, modified })
    }

    fn leave(&mut self) -> Result<ArchiveRecord, ArchiveError> {
        let above = self.depth.checked_sub(1);
        self.depth = above.ok_or(ArchiveError::Malformed("a directory left but not entered"))?;
        Ok(ArchiveRecord::Leave)
    }

    fn file(&mut self) -> Result<ArchiveRecord, ArchiveError> {
        let (mode, modified) = self.attributes()?;
        let bytes = u64::from_be_bytes(take(&mut self.source)?);
        let name = self.name()?;
        self.file = Some((0, bytes));
        Ok(ArchiveRecord::File { name, mode, modified, bytes })
    }

    fn data(&mut self) -> Result<ArchiveRecord, ArchiveError> {
        let (from, end) = self.file.ok_or(ArchiveError::Malformed("contents of no file"))?;
        let offset = u64::from_be_bytes(take(&mut self.source)?);
        let length = u32::from_be_bytes(take(&mut self.source)?);
        let after = offset.checked_add(length.into()).filter(|after| *after <= end);
        let (Some(after), true) = (after, offset >= from && length > 0) else {
            return Err(ArchiveError::Malformed("contents outside their file"));
        };
        let length = usize::try_from(length).ok().filter(|length| *length <= DATA_BYTES_MAX);
        let length = length.ok_or(ArchiveError::Malformed("too much in one record"))?;
        self.file = Some((after, end));
        Ok(ArchiveRecord::Data { offset, contents: self.bytes(length)? })
    }

    fn link(&mut self) -> Result<ArchiveRecord, ArchiveError> {
        let name = self.name()?;
        let length = usize::from(u16::from_be_bytes(take(&mut self.source)?));
        if !(1..=LINK_BYTES_MAX).contains(&length) {
            return Err(ArchiveError::Malformed("the text of a link"));
        }
        let target = self.bytes(length)?;
        if target.contains(&0) {
            return Err(ArchiveError::Malformed("the text of a link"));
        }
        Ok(ArchiveRecord::Link { name, target })
    }

    fn attributes(&mut self) -> Result<(u16, Modified), ArchiveError> {
        let mode = u16::from_be_bytes(take(&mut self.source)?);
        let seconds = i64::from_be_bytes(take(&mut self.source)?);
        let nanoseconds = u32::from_be_bytes(take(&mut self.source)?);
        if mode > 0o777 || nanoseconds >= NANOS {
            return Err(ArchiveError::Malformed("attributes"));
        }
        Ok((mode, Modified { seconds, nanoseconds }))
    }

    fn name(&mut self) -> Result<Vec<u8>, ArchiveError> {
        let [length] = take::<1>(&mut self.source)?;
        let name = self.bytes(length.into())?;
        check_name(&name)?;
        Ok(name)
    }

    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, ArchiveError> {
        let mut bytes = vec![0; length];
        exactly(&mut self.source, &mut bytes)?;
        Ok(bytes)
    }
}

fn take<const LENGTH: usize>(source: &mut impl Read) -> Result<[u8; LENGTH], ArchiveError> {
    let mut bytes = [0; LENGTH];
    exactly(source, &mut bytes)?;
    Ok(bytes)
}

fn exactly(source: &mut impl Read, bytes: &mut [u8]) -> Result<(), ArchiveError> {
    source.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => ArchiveError::CutOff,
        _ => ArchiveError::Io(error),
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn written(records: &[ArchiveRecord]) -> Vec<u8> {
        let mut writer = ArchiveWriter::begin(Vec::new()).unwrap();
        for record in records {
            writer.write(record).unwrap();
        }
        writer.into_inner()
    }

    fn read(bytes: &[u8]) -> Result<Vec<ArchiveRecord>, ArchiveError> {
        let mut reader = ArchiveReader::begin(bytes)?;
        let mut records = Vec::new();
        loop {
            records.push(reader.read()?);
            if records.last() == Some(&ArchiveRecord::End) {
                return Ok(records);
            }
        }
    }

    fn file(name: &str, bytes: u64) -> ArchiveRecord {
        ArchiveRecord::File { name: name.into(), mode: 0o644, modified: Modified::default(), bytes }
    }

    fn directory(name: &str) -> ArchiveRecord {
        let modified = Modified { seconds: -1, nanoseconds: 999_999_999 };
        ArchiveRecord::Enter { name: name.into(), mode: 0o755, modified }
    }

    fn data(offset: u64, contents: &str) -> ArchiveRecord {
        ArchiveRecord::Data { offset, contents: contents.into() }
    }

    #[test]
    fn a_tree_is_read_as_it_was_written() {
        let link = ArchiveRecord::Link { name: b"l".to_vec(), target: b"../x\xFF".to_vec() };
        let records = [
            directory("d"),
            file("f", 100),
            data(3, "abc"),
            data(97, "end"),
            link,
            ArchiveRecord::Leave,
            ArchiveRecord::Other { name: b"fifo".to_vec() },
            file("empty", 0),
            ArchiveRecord::End,
        ];
        assert_eq!(read(&written(&records)).unwrap(), records);
    }

    #[test]
    fn a_malformed_stream_is_refused_with_a_reason() {
        let raw = |bytes: &[u8]| [MAGIC, bytes].concat();
        let cases: [(&str, Vec<u8>); 12] = [
            ("not a tree", b"CFDTREE2E".to_vec()),
            ("a directory left but not entered", written(&[ArchiveRecord::Leave])),
            ("an end inside a directory", written(&[directory("d"), ArchiveRecord::End])),
            ("contents of no file", written(&[data(0, "x")])),
            (
                "contents of no file",
                written(&[
                    file("f", 9),
                    ArchiveRecord::Other { name: b"o".to_vec() },
                    data(0, "x"),
                ]),
            ),
            ("contents outside their file", written(&[file("f", 3), data(1, "abc")])),
            ("contents outside their file", written(&[file("f", 9), data(3, "abc"), data(2, "x")])),
            ("contents outside their file", written(&[file("f", u64::MAX), data(u64::MAX, "x")])),
            ("unknown kind of record", raw(b"Z")),
            ("a name", raw(b"O\x02..")),
            ("a name", raw(b"O\x03a/b")),
            ("attributes", raw(&[&b"D\xFF\xFF"[..], &[0; 12], b"\x01d"].concat())),
        ];
        for (reason, bytes) in cases {
            let fault = read(&bytes).unwrap_err().to_string();
            assert_eq!(fault.trim_start_matches("malformed: "), reason, "{bytes:?}");
        }
    }

    #[test]
    fn a_length_without_data_allocates_no_memory() {
        let mut bytes = written(&[file("f", u64::MAX)]);
        bytes.push(b'X');
        bytes.extend(0_u64.to_be_bytes());
        bytes.extend(u32::MAX.to_be_bytes());
        assert!(matches!(read(&bytes), Err(ArchiveError::Malformed("too much in one record"))));
    }

    #[test]
    fn names_that_lead_elsewhere_are_not_written_either() {
        for name in ["", ".", "..", "a/b", "a\0", &"x".repeat(256)] {
            let mut writer = ArchiveWriter::begin(Vec::new()).unwrap();
            assert!(writer.write(&ArchiveRecord::Other { name: name.into() }).is_err(), "{name:?}");
        }
    }

    fn record() -> impl Strategy<Value = ArchiveRecord> {
        let name = || "[^/\0]{1,20}".prop_filter("a name", |n| n != "." && n != "..");
        prop_oneof![
            name().prop_map(|name| directory(&name)),
            Just(ArchiveRecord::Leave),
            (name(), any::<u64>()).prop_map(|(name, bytes)| file(&name, bytes)),
            (any::<u64>(), vec(any::<u8>(), 1..50))
                .prop_map(|(offset, contents)| ArchiveRecord::Data { offset, contents }),
            (name(), "[^\0]{1,30}")
                .prop_map(|(n, t)| ArchiveRecord::Link { name: n.into(), target: t.into() }),
            name().prop_map(|name| ArchiveRecord::Other { name: name.into() }),
            Just(ArchiveRecord::End),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn accepted_records_equal_the_written_ones_and_stay_in_the_tree(
            records in vec(record(), 0..20),
        ) {
            let Ok(taken) = read(&written(&records)) else { return Ok(()) };
            prop_assert_eq!(&taken[..], &records[..taken.len()]);
            let mut depth = 0_i64;
            for record in &taken {
                depth += i64::from(matches!(record, ArchiveRecord::Enter { .. }));
                depth -= i64::from(matches!(record, ArchiveRecord::Leave));
                prop_assert!(depth >= 0);
            }
        }

        #[test]
        fn arbitrary_and_truncated_bytes_do_no_harm(bytes in vec(any::<u8>(), 0..200), cut in 0_usize..200) {
            let _ = read(&bytes);
            let _ = read(&[MAGIC, &bytes[..]].concat());
            let whole = written(&[directory("d"), file("f", 9), data(0, "123"), ArchiveRecord::Leave, ArchiveRecord::End]);
            let cut = cut % whole.len();
            prop_assert!(matches!(read(&whole[..cut]), Err(ArchiveError::CutOff)));
        }
    }
}
