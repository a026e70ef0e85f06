//! What an executor and the process above a command tell each other.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest message, bytes.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// The bytes of a length.
const LENGTH_BYTES: usize = 4;

/// The command to run. As many bytes of stdin as it says follow it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StepOrder {
    /// Its words.
    pub(super) argv: Vec<String>,
    /// Its whole environment.
    pub(super) env: BTreeMap<String, String>,
    /// Its working directory.
    pub(super) cwd: PathBuf,
    /// Bytes of stdin.
    pub(super) stdin_bytes: usize,
}

/// How it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StepReply {
    /// The working directory cannot be entered.
    BadCwd { errno: i32 },
    /// exec refused the program.
    NotExecuted { errno: i32 },
    /// A step of ours failed.
    Failed { step: String, errno: i32 },
    /// The program ended.
    Ended(EndedStep),
}

/// How a program ended, and what it used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndedStep {
    /// Its exit code; 0 if a signal ended it.
    pub(super) code: u8,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
    pub(super) wall_ms: u64,
    pub(super) cpu_ms: u64,
    pub(super) memory_peak_bytes: u64,
}

/// Writes `message` to `stream`.
pub(super) fn send(stream: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    stream.write_all(&length.to_le_bytes())?;
    stream.write_all(&text)
}

/// Reads a message from `stream`.
pub(super) fn receive<M: DeserializeOwned>(stream: &mut impl Read) -> io::Result<M> {
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(io::Error::other)?;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::other("a message is too long"));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_as_it_was_sent_and_a_long_one_is_refused() {
        let order = StepOrder {
            argv: vec!["a b".to_owned()],
            env: BTreeMap::from([("A".to_owned(), "é".to_owned())]),
            cwd: "/c".into(),
            stdin_bytes: 7,
        };
        let mut sent = Vec::new();
        send(&mut sent, &order).unwrap();
        sent.extend(b"rest");
        let mut stream = sent.as_slice();
        assert_eq!(receive::<StepOrder>(&mut stream).unwrap(), order);
        assert_eq!(stream, b"rest");
        let long = u32::MAX.to_le_bytes();
        assert!(receive::<StepOrder>(&mut long.as_slice()).is_err());
    }
}
