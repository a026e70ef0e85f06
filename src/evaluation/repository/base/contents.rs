//! The contents of a saved base: each extent once, in the order in which the manifest names them first.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom, Write};

use sha2::{Digest, Sha256};

use cofferdam_tree::saved::{Extent, ExtentDigest, ExtentSink, ExtentSource};

/// Where extents are in the contents, with their lengths.
type ExtentPlaces = HashMap<ExtentDigest, (u64, usize)>;

/// Writes contents.
#[derive(Debug)]
pub struct ContentsWriter<W> {
    output: W,
    places: ExtentPlaces,
    bytes: u64,
    bytes_max: u64,
}

impl<W: Write> ContentsWriter<W> {
    /// Writes at most `bytes_max` bytes to `output`.
    pub fn new(output: W, bytes_max: u64) -> Self {
        Self { output, places: HashMap::new(), bytes: 0, bytes_max }
    }

    /// Flushes the output. Returns the number of bytes written in all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(mut self) -> io::Result<u64> {
        self.output.flush()?;
        Ok(self.bytes)
    }
}

impl<W: Write> ExtentSink for ContentsWriter<W> {
    fn keep(&mut self, digest: &ExtentDigest, bytes: &[u8]) -> io::Result<()> {
        if self.places.contains_key(digest) {
            return Ok(());
        }
        let end = self.bytes.saturating_add(bytes.len() as u64);
        if end > self.bytes_max {
            return Err(io::Error::other("more bytes than the cache may have"));
        }
        self.output.write_all(bytes)?;
        self.places.insert(*digest, (self.bytes, bytes.len()));
        self.bytes = end;
        Ok(())
    }

    fn name(&mut self, _: &Extent) {
        // There is no earlier manifest whose extents could be named.
    }
}

/// Reads contents that a [`ContentsWriter`] has written, and believes no byte without its digest.
#[derive(Debug)]
pub struct ContentsReader<R> {
    input: R,
    places: ExtentPlaces,
    /// Where the next extent is that was not read yet.
    next: u64,
    /// Where `input` is.
    at: u64,
}

impl<R: Read + Seek> ContentsReader<R> {
    /// Reads from the beginning of `input`.
    pub fn new(input: R) -> Self {
        Self { input, places: HashMap::new(), next: 0, at: 0 }
    }

    /// How many bytes were named.
    pub fn bytes(&self) -> u64 {
        self.next
    }
}

impl<R: Read + Seek> ExtentSource for ContentsReader<R> {
    fn read(&mut self, digest: &ExtentDigest, bytes: &mut [u8]) -> io::Result<()> {
        let new = (self.next, bytes.len());
        let (place, length) = *self.places.get(digest).unwrap_or(&new);
        if length != bytes.len() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an extent has two lengths"));
        }
        if place != self.at {
            self.input.seek(SeekFrom::Start(place))?;
        }
        self.input.read_exact(bytes)?;
        self.at = place.saturating_add(length as u64);
        if Sha256::digest(&*bytes).as_slice() != digest.as_slice() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an extent has changed"));
        }
        if place == self.next {
            self.places.insert(*digest, new);
            self.next = self.at;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn digest(bytes: &[u8]) -> ExtentDigest {
        Sha256::digest(bytes).into()
    }

    #[test]
    fn each_extent_is_kept_once_and_a_changed_or_missing_byte_is_noticed() {
        let named: [&[u8]; 4] = [b"one", b"second", b"one", b"third"];
        let mut contents = Vec::new();
        let mut writer = ContentsWriter::new(&mut contents, 14);
        named.iter().for_each(|bytes| writer.keep(&digest(bytes), bytes).unwrap());
        assert!(writer.keep(&digest(b"x"), b"x").is_err(), "14 bytes are enough for these alone");
        assert_eq!(writer.end().unwrap(), 14);
        assert_eq!(contents, b"onesecondthird");
        let read = |contents: &[u8]| -> io::Result<Vec<Vec<u8>>> {
            let mut reader = ContentsReader::new(Cursor::new(contents.to_vec()));
            let one = |bytes: &&[u8]| {
                let mut buffer = vec![0; bytes.len()];
                reader.read(&digest(bytes), &mut buffer).map(|()| buffer)
            };
            named.iter().map(one).collect()
        };
        assert_eq!(read(&contents).unwrap(), named);
        for at in 0..contents.len() {
            let mut changed = contents.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "{at}");
            assert!(read(&contents[..at]).is_err(), "{at}");
        }
    }
}
