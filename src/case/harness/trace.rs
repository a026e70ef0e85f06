//! The trace of an agent: a JSON line for each event, up to a limit.

use std::fmt;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// The longest trace, bytes.
pub const TRACE_BYTES_MAX: u64 = 64 << 20;
/// What the last line of a trace that is cut needs, bytes.
const LAST_LINE_BYTES: u64 = 64;

/// Where the events of one agent go.
pub struct HarnessTrace(Mutex<TraceState>);

struct TraceState {
    out: Box<dyn Write + Send>,
    /// Bytes that may still be written; none once the trace is cut.
    left_bytes: Option<u64>,
}

impl HarnessTrace {
    /// Writes at most `bytes_max` bytes to `out`.
    pub fn new(out: impl Write + Send + 'static, bytes_max: u64) -> Self {
        let left_bytes = Some(bytes_max.saturating_sub(LAST_LINE_BYTES));
        Self(Mutex::new(TraceState { out: Box::new(out), left_bytes }))
    }

    /// A trace that nobody reads.
    pub fn none() -> Self {
        Self::new(std::io::sink(), 0)
    }

    /// Writes one event. One that does not fit is the last: the line `{"event":"cut"}` stands for it and all others.
    pub fn write(&self, event: &Value) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = state.left_bytes else { return };
        let line = format!("{event}\n");
        let bytes = line.len() as u64;
        let (line, left) = match left.checked_sub(bytes) {
            Some(left) => (line, Some(left)),
            None => (format!("{}\n", json!({"event": "cut"})), None),
        };
        state.left_bytes = left;
        if let Err(error) = state.out.write_all(line.as_bytes()) {
            log::warn!("a trace ends early: {error}");
            state.left_bytes = None;
        }
    }
}

impl fmt::Debug for HarnessTrace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("HarnessTrace").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_trace_is_whole_lines_up_to_its_limit() {
        let kept = Kept::default();
        let trace = HarnessTrace::new(kept.clone(), LAST_LINE_BYTES + 30);
        for event in
            [json!({"event": "a"}), json!({"event": "too long".repeat(9)}), json!({"b": 1})]
        {
            trace.write(&event);
        }
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "{\"event\":\"a\"}\n{\"event\":\"cut\"}\n");
    }
}
