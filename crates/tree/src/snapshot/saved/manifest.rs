//! A manifest as a stream: a head, the entries, the mark of the end, and the SHA-256 of all before.

use std::io::{self, BufReader, Read, Write};

use sha2::{Digest, Sha256};

use super::codec::{self, damaged};
use super::entry::SavedEntry;

/// Names this form of a manifest; another form gets another number.
const FORM: &[u8; 20] = b"cofferdam manifest 1";

/// Writes a manifest.
#[derive(Debug)]
pub(super) struct ManifestWriter<'output, W> {
    output: &'output mut W,
    hash: Sha256,
    /// The path of the last entry.
    before: Vec<u8>,
    encoded: Vec<u8>,
}

impl<'output, W: Write> ManifestWriter<'output, W> {
    /// Begins a manifest of a tree in its life `life`.
    pub(super) fn begin(output: &'output mut W, life: [u8; 16]) -> io::Result<Self> {
        let mut writer =
            Self { output, hash: Sha256::new(), before: Vec::new(), encoded: Vec::new() };
        writer.encoded.extend(FORM);
        writer.encoded.extend(life);
        writer.flush()?;
        Ok(writer)
    }

    /// Adds an entry, whose path comes after the one before.
    pub(super) fn add(&mut self, entry: SavedEntry) -> io::Result<()> {
        codec::encode(&entry, &self.before, &mut self.encoded);
        self.before = entry.path;
        self.flush()
    }

    /// Ends the manifest.
    pub(super) fn end(mut self) -> io::Result<()> {
        codec::encode_end(&mut self.encoded);
        self.flush()?;
        self.output.write_all(&self.hash.finalize())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hash.update(&self.encoded);
        self.output.write_all(&self.encoded)?;
        self.encoded.clear();
        Ok(())
    }
}

/// Reads a manifest entry by entry.
#[derive(Debug)]
pub struct ManifestReader<R> {
    input: HashingReader<BufReader<R>>,
    life: [u8; 16],
    before: Vec<u8>,
    is_over: bool,
}

impl<R: Read> ManifestReader<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// It cannot be read, or is not a manifest.
    pub fn open(input: R) -> io::Result<Self> {
        let mut input = HashingReader { input: BufReader::new(input), hash: Sha256::new() };
        let (mut form, mut life) = ([0; FORM.len()], [0; 16]);
        input.read_exact(&mut form)?;
        if form != *FORM {
            return Err(damaged("form"));
        }
        input.read_exact(&mut life)?;
        Ok(Self { input, life, before: Vec::new(), is_over: false })
    }

    /// The life of the tree in which it was saved.
    pub fn life(&self) -> [u8; 16] {
        self.life
    }

    /// The next entry; `None` at the end, which is returned only if all of it is as it was written.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub fn advance(&mut self) -> io::Result<Option<SavedEntry>> {
        if self.is_over {
            return Ok(None);
        }
        if let Some(entry) = codec::decode(&mut self.input, &self.before)? {
            self.before.clone_from(&entry.path);
            return Ok(Some(entry));
        }
        self.is_over = true;
        let expected = self.input.hash.clone().finalize();
        let mut written = [0; 32];
        self.input.read_exact(&mut written)?;
        if written.as_slice() == expected.as_slice() { Ok(None) } else { Err(damaged("digest")) }
    }
}

#[derive(Debug)]
struct HashingReader<R> {
    input: R,
    hash: Sha256,
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}
