//! Decompresses zstd: frame after frame, in the memory of one window.

use std::io::{self, BufRead, BufReader, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::error::{Refused, UnsafeReason};

/// The largest window, bytes.
const WINDOW_BYTES_MAX: u64 = 8 << 20;

/// The decompressed bytes of a zstd file.
pub(super) struct ZstdReader<R> {
    source: BufReader<R>,
    decoder: FrameDecoder,
    in_frame: bool,
    refused: Refused,
}

impl<R: Read> ZstdReader<R> {
    pub(super) fn new(source: R, refused: Refused) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Self { source: BufReader::new(source), decoder, in_frame: false, refused }
    }

    /// Begins the next frame that has contents; `false` at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.source).take(u64::from(length));
                    if io::copy(&mut skipped, &mut io::sink())? < u64::from(length) {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                }
                Err(error) => {
                    if matches!(error, FrameDecoderError::WindowSizeTooBig { .. }) {
                        self.refused.set(Some(UnsafeReason::Window));
                    }
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
        }
        Ok(false)
    }

    /// Whether the checksum of the frame that has ended, if it has one, is that of its contents.
    fn is_intact(&self) -> bool {
        let stored = self.decoder.get_checksum_from_data();
        stored.is_none_or(|stored| self.decoder.get_calculated_checksum() == Some(stored))
    }
}

impl<R: Read> Read for ZstdReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.in_frame && !self.next_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let blocks = BlockDecodingStrategy::UptoBlocks(1);
                let decoded = self.decoder.decode_blocks(&mut self.source, blocks);
                // The error of the source is not kept: what cannot be read is damaged.
                decoded.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            self.in_frame = false;
            if !self.is_intact() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}
