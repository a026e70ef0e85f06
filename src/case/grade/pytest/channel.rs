//! What the runner sends: numbered lines with a code that only the runner can make (pure).

use serde::Deserialize;
use sha2::{Digest as _, Sha256 as Hash};
use uuid::Uuid;

use cofferdam_core::weakened::{self, Wall};

const SECRET_BYTES: usize = 32;
/// The bytes that SHA-256 takes at a time.
const BLOCK_BYTES: usize = 64;

/// The secret that authenticates the frames of one run.
#[derive(Clone)]
pub(super) struct ChannelSecret([u8; SECRET_BYTES]);

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestEnd {
    /// Nothing of it raised.
    Passed,
    /// It raised, or skipped itself without a mark.
    Failed,
    /// It is marked as skipped.
    Skipped,
    /// It is marked as failing and did.
    XFailed,
}

/// One thing that the runner reports.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunnerFrame {
    /// The version of pytest, once it is imported. No tested code has run before.
    Pytest(String),
    /// The files that were asked for and define tests.
    Named(Vec<String>),
    /// Collected tests: the id, and the same with the path from the working directory.
    Tests(Vec<(String, String)>),
    /// What could not be collected.
    Broken(String),
    /// How the test of that number ended, numbered as they were collected.
    End(u32, TestEnd),
    /// How the canary ended.
    Canary(TestEnd),
    /// Why no test could run.
    Fault(String),
}

impl ChannelSecret {
    /// A new one.
    pub(super) fn random() -> Self {
        let mut secret = [0; SECRET_BYTES];
        let parts = [Uuid::new_v4(), Uuid::new_v4()];
        for (byte, random) in secret.iter_mut().zip(parts.iter().flat_map(Uuid::as_bytes)) {
            *byte = *random;
        }
        Self(secret)
    }

    /// As the runner gets it.
    pub(super) fn hex(&self) -> String {
        hex(&self.0)
    }

    /// The code of `content`: HMAC with SHA-256.
    pub(super) fn code(&self, content: &[u8]) -> String {
        let padded = |with: u8| {
            let mut block = [with; BLOCK_BYTES];
            for (byte, secret) in block.iter_mut().zip(self.0) {
                *byte ^= secret;
            }
            block
        };
        let inner = Hash::new().chain_update(padded(0x36)).chain_update(content).finalize();
        hex(&Hash::new().chain_update(padded(0x5c)).chain_update(inner).finalize())
    }

    /// The frames in `text`. The last line may be cut.
    ///
    /// # Errors
    /// The number of the line that the runner did not send there.
    pub(super) fn frames(&self, text: &str) -> Result<Vec<RunnerFrame>, usize> {
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let frames = lines.enumerate().map(|(number, line)| self.frame(number, line).ok_or(number));
        if weakened::lacks(Wall::Framed) {
            return Ok(frames.filter_map(Result::ok).collect());
        }
        frames.collect()
    }

    fn frame(&self, number: usize, line: &str) -> Option<RunnerFrame> {
        let (code, content) = line.split_once(' ')?;
        let (sent, frame) = content.split_once(' ')?;
        let is_sent = code == self.code(content.as_bytes()) && sent == number.to_string();
        if !is_sent && !weakened::lacks(Wall::Framed) {
            return None;
        }
        serde_json::from_str(frame).ok()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl std::fmt::Debug for ChannelSecret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ChannelSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line as the runner sends it.
    fn line(secret: &ChannelSecret, number: usize, frame: &str) -> String {
        let content = format!("{number} {frame}");
        format!("{} {content}\n", secret.code(content.as_bytes()))
    }

    #[test]
    fn a_code_is_that_of_rfc_4231() {
        let mut secret = [0; SECRET_BYTES];
        secret[..4].copy_from_slice(b"Jefe");
        let code = ChannelSecret(secret).code(b"what do ya want for nothing?");
        assert_eq!(code, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn two_secrets_differ() {
        assert_ne!(ChannelSecret::random().hex(), ChannelSecret::random().hex());
        assert_eq!(ChannelSecret::random().hex().len(), 64);
    }

    #[test]
    fn frames_are_read_in_their_order_and_a_cut_one_is_left_out() {
        let secret = ChannelSecret::random();
        let text = line(&secret, 0, r#"{"pytest":"8.4.2"}"#)
            + &line(&secret, 1, r#"{"tests":[["a.py::b","a.py::b"]]}"#)
            + &line(&secret, 2, r#"{"end":[0,"xfailed"]}"#);
        let wanted = [
            RunnerFrame::Pytest("8.4.2".into()),
            RunnerFrame::Tests(vec![("a.py::b".into(), "a.py::b".into())]),
            RunnerFrame::End(0, TestEnd::XFailed),
        ];
        assert_eq!(secret.frames(&text).unwrap(), wanted);
        assert_eq!(secret.frames(&text[..text.len() - 3]).unwrap(), wanted[..2]);
        assert_eq!(secret.frames("").unwrap(), []);
    }

    #[test]
    fn a_line_that_the_runner_did_not_send_there_is_named() {
        let secret = ChannelSecret::random();
        let first = line(&secret, 0, r#"{"pytest":"8"}"#);
        let other = ChannelSecret::random();
        for (added, why) in [
            ("1 passed in 0.01s\n".to_owned(), "printed"),
            ("\n".to_owned(), "empty"),
            (r#"00 1 {"canary":"failed"}"#.to_owned() + "\n", "without a code"),
            (line(&other, 1, r#"{"canary":"failed"}"#), "another secret"),
            (first.clone(), "sent again"),
            (line(&secret, 2, r#"{"canary":"failed"}"#), "one is missing"),
            (line(&secret, 1, r#"{"canary":"equal"}"#), "no outcome"),
        ] {
            assert_eq!(secret.frames(&(first.clone() + &added)), Err(1), "{why}");
        }
    }
}
