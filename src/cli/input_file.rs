//! What a command is given as a file, or on stdin.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What is in `path`, `-` for stdin: at most `bytes_max` bytes and one more, by which a caller
/// sees that there are too many.
pub fn read_input(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path)?)
    };
    let mut bytes = Vec::new();
    source.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}
