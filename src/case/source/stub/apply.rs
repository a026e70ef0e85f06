//! Empties functions in the files of a Cell.

use std::path::{Path, PathBuf};

use super::function::{StubError, stub_function};
use crate::case::cell::{CellExecutor, ExecError};
use crate::case::file::StubTarget;

/// The mode of a file that the source does not have.
const MODE_DEFAULT: u32 = 0o644;

/// A regular file of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// Below the source, links resolved.
    pub path: PathBuf,
    /// Its permission bits.
    pub mode: u32,
}

/// Why a function of a Cell cannot be emptied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StubFault {
    /// The file cannot be read or written.
    #[error("setup.stub: {0}")]
    File(ExecError),
    /// The file has no such function.
    #[error("setup.stub: {file}: {reason}", file = .file.display())]
    Function {
        /// The file, as the Case names it.
        file: PathBuf,
        /// Why.
        reason: StubError,
    },
}

/// Empties the function of `target` in a Cell. `find` finds a file of the source: where it is behind links, which are
/// not replaced, and its mode, which stays.
///
/// # Errors
/// The file is unchanged.
pub fn apply_stub(
    cell: &dyn CellExecutor,
    target: &StubTarget,
    find: &dyn Fn(&Path) -> Option<FoundFile>,
) -> Result<(), StubFault> {
    let StubTarget { file, function } = target;
    let named = || FoundFile { path: file.clone(), mode: MODE_DEFAULT };
    let FoundFile { path, mode } = find(file).unwrap_or_else(named);
    let path = path.display().to_string();
    let content = cell.get(&path).map_err(StubFault::File)?;
    let stubbed = stub_bytes(content, function)
        .map_err(|reason| StubFault::Function { file: file.clone(), reason })?;
    cell.put(&path, &stubbed, mode).map_err(StubFault::File)
}

/// As [`stub_function`], for a file in UTF-8 or another encoding that has ASCII as it is.
fn stub_bytes(content: Vec<u8>, function: &str) -> Result<Vec<u8>, StubError> {
    match String::from_utf8(content) {
        Ok(source) => stub_function(&source, function).map(String::into_bytes),
        // A character for each byte, and back.
        Err(other) => {
            let source: String = other.as_bytes().iter().copied().map(char::from).collect();
            let stubbed = stub_function(&source, function)?;
            Ok(stubbed.chars().filter_map(|character| u8::try_from(character).ok()).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_encoding_stay() {
        let latin = b"# coding: latin-1\ndef f(): return '\xe9'\nx = '\xfc\xff'\n".to_vec();
        let wanted = b"# coding: latin-1\ndef f(): raise NotImplementedError\nx = '\xfc\xff'\n";
        assert_eq!(stub_bytes(latin, "f").unwrap(), wanted);
    }
}
