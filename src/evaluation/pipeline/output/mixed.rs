//! What a program writes to stdout and stderr, in the order in which it came.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::queue::{ObserverQueue, TextTeller, WrittenText};
use super::secrets::{SecretFilter, SecretValues};
use crate::evaluation::repository::InstallOutput;
use crate::evaluation::result::EvaluationStep;
use cofferdam_core::{CapturedStream, OutputSink, Stream};

/// What holds for all output of one evaluation.
#[derive(Debug)]
pub struct OutputRules {
    bytes_max: usize,
    secrets: SecretValues,
    texts: TextTeller,
}

impl OutputRules {
    /// Of each program up to `bytes_max` bytes are kept and told to `queue`, without `secrets`.
    pub fn new(bytes_max: usize, secrets: SecretValues, queue: &ObserverQueue<'_>) -> Self {
        Self { bytes_max, secrets, texts: queue.texts() }
    }

    /// For a program of `step`; `name` is that of the test, if it is one.
    pub fn of(&self, step: EvaluationStep, name: Option<&str>) -> MixedOutput {
        let told = ToldText {
            texts: self.texts.clone(),
            step,
            name: name.map(str::to_owned),
            waiting: Vec::new(),
        };
        let secrets = &self.secrets;
        MixedOutput::with(self.bytes_max, secrets, Some(told))
    }

    /// Keeps texts that were told before.
    pub fn collected(&self) -> MixedOutput {
        MixedOutput::new(self.bytes_max)
    }

    /// `text` without secrets.
    pub fn redacted(&self, text: String) -> String {
        self.secrets.redact(text)
    }
}

/// Output up to a limit. Clones are the same one.
#[derive(Debug, Clone)]
pub struct MixedOutput {
    taken: Arc<Mutex<TakenOutput>>,
    bytes_max: usize,
}

#[derive(Debug)]
struct TakenOutput {
    /// A value may be written in two pieces with a piece of the other stream between them.
    streams: [SecretFilter; 2],
    mixed: SecretFilter,
    kept: CapturedStream,
    told: Option<ToldText>,
}

/// Text that the observer is told.
#[derive(Debug)]
struct ToldText {
    texts: TextTeller,
    step: EvaluationStep,
    name: Option<String>,
    /// What was not told yet: there is no room for it, or its last character is not whole.
    waiting: Vec<u8>,
}

impl MixedOutput {
    /// Keeps up to `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self::with(bytes_max, &SecretValues::default(), None)
    }

    fn with(bytes_max: usize, secrets: &SecretValues, told: Option<ToldText>) -> Self {
        let filter = || SecretFilter::new(secrets.clone());
        let (streams, kept) = ([filter(), filter()], CapturedStream::default());
        let taken = TakenOutput { streams, mixed: filter(), kept, told };
        Self { taken: Arc::new(Mutex::new(taken)), bytes_max }
    }

    /// Adds what a program wrote.
    pub fn add(&self, bytes: &[u8]) {
        self.lock().keep(bytes, self.bytes_max);
    }

    /// The text with a note if something was dropped, and whether it was. The program has ended.
    pub fn text(&self) -> (String, bool) {
        let mut taken = self.lock();
        taken.end(self.bytes_max);
        let kept = &taken.kept;
        let mut text = kept.text().into_owned();
        if kept.truncated {
            let total = kept.bytes_total;
            text += &format!("... [truncated at {} bytes, total {total}]", self.bytes_max);
        }
        (text, kept.truncated)
    }

    fn pass(&self, stream: Stream, bytes: &[u8]) {
        let mut taken = self.lock();
        if taken.kept.truncated {
            // Nothing of it is shown.
            taken.kept.bytes_total = taken.kept.bytes_total.saturating_add(bytes.len() as u64);
            return;
        }
        let [stdout, stderr] = &mut taken.streams;
        let passed = match stream {
            Stream::Stdout => stdout.pass(bytes),
            Stream::Stderr => stderr.pass(bytes),
        };
        taken.mix(&passed, self.bytes_max);
    }

    fn lock(&self) -> MutexGuard<'_, TakenOutput> {
        // Each change leaves it consistent.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakenOutput {
    fn mix(&mut self, bytes: &[u8], bytes_max: usize) {
        let passed = self.mixed.pass(bytes);
        self.keep(&passed, bytes_max);
    }

    fn keep(&mut self, bytes: &[u8], bytes_max: usize) {
        let kept = &mut self.kept;
        kept.bytes_total = kept.bytes_total.saturating_add(bytes.len() as u64);
        let room = bytes_max.saturating_sub(kept.bytes.len()).min(bytes.len());
        let (fits, rest) = bytes.split_at(room);
        kept.bytes.extend_from_slice(fits);
        kept.truncated |= !rest.is_empty();
        if let Some(told) = &mut self.told {
            told.waiting.extend_from_slice(fits);
            told.tell_if_possible();
        }
    }

    fn end(&mut self, bytes_max: usize) {
        let [stdout, stderr] = &mut self.streams;
        for rest in [stdout.rest(), stderr.rest()] {
            self.mix(&rest, bytes_max);
        }
        let rest = self.mixed.rest();
        self.keep(&rest, bytes_max);
        if let Some(told) = &mut self.told {
            told.tell_all();
        }
    }
}

impl ToldText {
    fn tell_if_possible(&mut self) {
        let whole = whole_characters(&self.waiting);
        if whole == 0 {
            return;
        }
        let rest = self.waiting.split_off(whole);
        let bytes = std::mem::replace(&mut self.waiting, rest);
        if self.texts.try_tell(self.text_of(&bytes)).is_some() {
            self.waiting.splice(0..0, bytes);
        }
    }

    fn tell_all(&mut self) {
        let bytes = std::mem::take(&mut self.waiting);
        if !bytes.is_empty() {
            self.texts.tell(self.text_of(&bytes));
        }
    }

    fn text_of(&self, bytes: &[u8]) -> WrittenText {
        let text = String::from_utf8_lossy(bytes).into_owned();
        WrittenText { step: self.step, name: self.name.clone(), text }
    }
}

/// The length of `bytes` without a character at the end that is not whole.
fn whole_characters(bytes: &[u8]) -> usize {
    const CHARACTER_BYTES_MAX: usize = 4;
    let from = bytes.len().saturating_sub(CHARACTER_BYTES_MAX);
    for start in from..bytes.len() {
        let end = bytes.get(start..).unwrap_or_default();
        if let Err(error) = std::str::from_utf8(end)
            && error.valid_up_to() == 0
            && error.error_len().is_none()
        {
            return start;
        }
    }
    bytes.len()
}

impl OutputSink for MixedOutput {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        self.pass(stream, bytes);
    }

    fn takes_excess(&self) -> bool {
        true
    }

    fn is_only_reader(&self) -> bool {
        true
    }
}

impl InstallOutput for MixedOutput {
    fn take(&self, _number: usize, bytes: &[u8]) {
        self.pass(Stream::Stdout, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::pipeline::progress::EvaluationObserver;
    use crate::evaluation::result::TestResult;

    #[test]
    fn output_is_kept_in_its_order_and_says_where_it_is_cut() {
        let mut output = MixedOutput::new(5);
        OutputSink::take(&mut output, Stream::Stdout, b"a\xff");
        OutputSink::take(&mut output, Stream::Stderr, b"b");
        assert_eq!(output.text(), ("a\u{fffd}b".to_owned(), false));
        OutputSink::take(&mut output, Stream::Stdout, b"cdef");
        let cut = "a\u{fffd}bcd... [truncated at 5 bytes, total 7]";
        assert_eq!(output.text(), (cut.to_owned(), true));
    }

    #[derive(Default)]
    struct Texts(Mutex<Vec<String>>);

    impl EvaluationObserver for Texts {
        fn step(&self, _: EvaluationStep) {}
        fn test(&self, _: &TestResult) {}
        fn output(&self, _: EvaluationStep, name: Option<&str>, text: &str) {
            self.0.lock().unwrap().push(format!("{name:?} {text}"));
        }
    }

    #[test]
    fn the_observer_is_told_whole_characters_without_secrets_up_to_the_limit() {
        let (texts, secret) = (Texts::default(), "hunter2hunter2".to_owned());
        std::thread::scope(|scope| {
            let queue = ObserverQueue::start(scope, &texts).unwrap();
            let rules = OutputRules::new(18, SecretValues::new([&secret]), &queue);
            let mut output = rules.of(EvaluationStep::RunningTests, Some("t"));
            for (stream, bytes) in [
                (Stream::Stdout, &b"hunter2"[..]),
                (Stream::Stderr, b"!\xc3"),
                (Stream::Stderr, b"\xa9\n"),
                (Stream::Stdout, b"hunter2.more than fits"),
            ] {
                OutputSink::take(&mut output, stream, bytes);
            }
            let (text, truncated) = output.text();
            assert!(text.starts_with("!\u{e9}\n[redacted].mor... [truncated at 18"), "{text}");
            assert!(truncated);
        });
        let told = ["Some(\"t\") !", "Some(\"t\") \u{e9}\n", "Some(\"t\") [redacted].mor"];
        assert_eq!(*texts.0.lock().unwrap(), told);
    }
}
