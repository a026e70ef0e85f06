//! The last output on a machine's console: a guest may print without end.

use std::io::Read;
use std::process::{ChildStderr, ChildStdout};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::session::messages::shown;

/// The kept bytes.
const KEPT_BYTES_MAX: usize = 4096;
/// The characters that are reported.
const TOLD_CHARS_MAX: usize = 300;
/// How long to wait for the rest of the pipes after the process has ended.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// The last output of a process.
#[derive(Debug, Clone, Default)]
pub struct Console {
    kept: Arc<Mutex<Vec<u8>>>,
    readers: Arc<()>,
}

impl Console {
    /// Reads both streams to their end, on two threads.
    pub fn of(stdout: Option<ChildStdout>, stderr: Option<ChildStderr>) -> Self {
        let console = Self::default();
        if let Some(stdout) = stdout {
            console.read(stdout);
        }
        if let Some(stderr) = stderr {
            console.read(stderr);
        }
        console
    }

    fn read(&self, mut source: impl Read + Send + 'static) {
        let console = self.clone();
        let reading = thread::Builder::new().name("console".to_owned()).spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok(count @ 1..) = source.read(&mut buffer) {
                console.take(buffer.get(..count).unwrap_or_default());
            }
        });
        if let Err(error) = reading {
            log::warn!("cannot read the console of a machine: {error}");
        }
    }

    fn take(&self, bytes: &[u8]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(bytes);
        let over = kept.len().saturating_sub(KEPT_BYTES_MAX);
        kept.drain(..over);
    }

    /// The last output as one line. Call it after the process has ended.
    pub fn last_words(&self) -> String {
        let until = Instant::now() + LAST_WAIT;
        while Arc::strong_count(&self.readers) > 1 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let skipped = text.chars().count().saturating_sub(TOLD_CHARS_MAX);
        shown(&text.chars().skip(skipped).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept_and_reported_on_one_line() {
        let console = Console::default();
        for _ in 0..1000 {
            console.take(b"much\x1b[31m\r\n");
        }
        console.take(b"Kernel panic\n\n - not syncing\xFF\n");
        assert!(console.kept.lock().unwrap().len() <= KEPT_BYTES_MAX);
        let words = console.last_words();
        assert!(words.ends_with("Kernel panic - not syncing\u{FFFD}"), "{words}");
        assert!(!words.contains('\x1b') && words.chars().count() <= TOLD_CHARS_MAX);
    }
}
