//! The file of one version: its bytes, what is known of them as JSON, the length of that JSON, and a
//! mark.
//!
//! The file gets its name when it is complete and on the disk, so one rename makes a version exist
//! with all that is known of it.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

/// The last bytes of every file.
const MARK: [u8; 8] = *b"CFDARTF1";
/// The length of the JSON and the mark, bytes.
const FOOTER_BYTES: u64 = 16;
/// The longest JSON, bytes.
const FACTS_BYTES_MAX: u64 = 64 << 10;

/// What is known of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VersionFacts {
    pub(super) sha256: String,
    pub(super) size_bytes: u64,
    pub(super) mime_type: String,
}

/// Writes what follows the bytes of a version.
pub(super) fn write_facts(file: &mut File, facts: &VersionFacts) -> io::Result<()> {
    let json = serde_json::to_vec(facts)?;
    file.write_all(&json)?;
    file.write_all(&(json.len() as u64).to_le_bytes())?;
    file.write_all(&MARK)
}

/// Reads what is known of the version in `file`, which has `file_bytes`. Returns what is wrong with
/// a file that was not written by [`write_facts`].
pub(super) fn read_facts(file: &File, file_bytes: u64) -> Result<VersionFacts, String> {
    let torn = || "not a whole version".to_owned();
    let footer_from = file_bytes.checked_sub(FOOTER_BYTES).ok_or_else(torn)?;
    let mut length = [0; 8];
    let mut mark = [0; 8];
    let read = |buffer: &mut [u8], from| file.read_exact_at(buffer, from).map_err(words);
    read(&mut length, footer_from)?;
    read(&mut mark, footer_from + 8)?;
    let length = u64::from_le_bytes(length);
    let json_from = footer_from.checked_sub(length).ok_or_else(torn)?;
    if mark != MARK || length > FACTS_BYTES_MAX {
        return Err(torn());
    }
    let mut json = vec![0; usize::try_from(length).unwrap_or_default()];
    read(&mut json, json_from)?;
    let facts: VersionFacts = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
    if facts.size_bytes == json_from { Ok(facts) } else { Err(torn()) }
}

#[expect(clippy::needless_pass_by_value, reason = "the signature that map_err takes")]
fn words(error: io::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_file_is_a_version() {
        for content in [&b""[..], b"content", b"CFDARTF1"] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(content).unwrap();
            let facts = VersionFacts {
                sha256: "x".to_owned(),
                size_bytes: content.len() as u64,
                mime_type: "text/plain".to_owned(),
            };
            write_facts(&mut file, &facts).unwrap();
            let whole = file.metadata().unwrap().len();
            assert_eq!(read_facts(&file, whole), Ok(facts));
            let mut bytes = vec![0; usize::try_from(whole).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            for cut in 0..bytes.len() {
                let mut torn = tempfile::tempfile().unwrap();
                torn.write_all(&bytes[..cut]).unwrap();
                assert!(read_facts(&torn, cut as u64).is_err(), "{cut} of {whole}");
                torn.write_all(&vec![0; bytes.len() - cut]).unwrap();
                assert!(read_facts(&torn, whole).is_err(), "zeros from {cut} of {whole}");
            }
        }
    }
}
