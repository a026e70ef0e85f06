//! A file of the container, read whole.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

/// The longest file, bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The content of the file at `path`, whatever commands have made of it.
///
/// # Errors
/// It is no file, is too long or cannot be read.
pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // A fifo would wait for a writer.
    let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut content = Vec::new();
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)?;
    match content.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::Error::from(io::ErrorKind::FileTooLarge)),
        false => Ok(content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::fs::{self, File};

    #[test]
    fn a_file_is_read_whole_and_anything_else_is_refused_at_once() {
        let place = tempfile::tempdir().unwrap();
        let [file, long, fifo, none] =
            ["file", "long", "fifo", "none"].map(|name| place.path().join(name));
        fs::write(&file, "content").unwrap();
        File::create(&long).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        assert_eq!(read_file(&file).unwrap(), b"content");
        for path in [&long, &fifo, &none, place.path()] {
            assert!(read_file(path).is_err(), "{}", path.display());
        }
    }
}
