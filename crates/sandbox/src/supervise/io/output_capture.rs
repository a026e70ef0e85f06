//! Captures an output stream, bounded and never blocking.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};

use super::pipe::{CHUNK_BYTES, PipeEnd};
use cofferdam_core::{CapturedStream, ExcessOutput, Limits, OutputSink, Stream};

/// The size of the pipes of a program that prints: the most that the kernel gives an unprivileged
/// process.
const PIPE_BYTES: i32 = 1 << 20;
/// The number of reads of one stream before the thread polls everything again.
const READS_PER_TURN_MAX: usize = 8;

/// The state of a stream after reading from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureState {
    /// More output may come.
    Open,
    /// Every writer closed the stream.
    Closed,
    /// The stream crossed its limit. The capture holds as many bytes as the limit allows.
    Overflowed,
}

/// How much of a stream is kept, and what becomes of more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputBound {
    /// The bytes that are kept.
    pub bytes_max: Option<u64>,
    /// Whether more are counted and dropped, and do not end the run.
    pub drops: bool,
}

impl OutputBound {
    /// The bounds of stdout and stderr.
    pub fn of(limits: &Limits, excess: ExcessOutput) -> [Self; 2] {
        match excess {
            ExcessOutput::Kills => [Self { bytes_max: limits.output_bytes_max, drops: false }; 2],
            ExcessOutput::Dropped { stdout_bytes_max, stderr_bytes_max } => {
                [stdout_bytes_max, stderr_bytes_max]
                    .map(|bytes_max| Self { bytes_max: Some(bytes_max), drops: true })
            }
        }
    }
}

/// Captures one output stream.
#[derive(Debug)]
pub struct OutputCapture {
    stream: Stream,
    pipe: Option<PipeEnd>,
    /// The sandbox's end, open while processes may write. Without it the pipe reports a hang-up
    /// when the last writer closes, which would wake the thread for nothing.
    kept_open: Option<OwnedFd>,
    captured: CapturedStream,
    bound: OutputBound,
}

impl OutputCapture {
    /// Captures within `bound` from `pipe`, whose other end is `sandbox_end`.
    pub fn new(stream: Stream, pipe: PipeEnd, sandbox_end: OwnedFd, bound: OutputBound) -> Self {
        Self {
            stream,
            pipe: Some(pipe),
            kept_open: Some(sandbox_end),
            captured: CapturedStream::default(),
            bound,
        }
    }

    /// A stream that nothing is written to.
    pub fn closed(stream: Stream, bound: OutputBound) -> Self {
        let captured = CapturedStream::default();
        Self { stream, pipe: None, kept_open: None, captured, bound }
    }

    /// The pipe, while it is open.
    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Enlarges the pipe if the kernel permits: a program that prints much then waits less often.
    pub fn widen(&self) {
        if let Some(pipe) = &self.pipe {
            // The default size works too; the program only waits more often.
            let _ = fcntl(pipe.as_fd(), FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
        }
    }

    /// Reads bytes that are no part of the output: what comes before the run. None yet is
    /// [`io::ErrorKind::WouldBlock`].
    pub fn read_before_run(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.pipe.as_mut().map_or(Ok(0), |pipe| pipe.read(bytes))
    }

    /// Reads available bytes, a bounded amount, and passes them to `sink`.
    pub fn read_available(
        &mut self,
        sink: &mut Option<Box<dyn OutputSink>>,
    ) -> io::Result<CaptureState> {
        let Some(pipe) = &mut self.pipe else { return Ok(CaptureState::Closed) };
        let mut chunk = [0; CHUNK_BYTES];
        for _ in 0..READS_PER_TURN_MAX {
            if sink.as_ref().is_some_and(|sink| !sink.has_room()) {
                break;
            }
            match pipe.read(&mut chunk) {
                Ok(0) => {
                    self.pipe = None;
                    return Ok(CaptureState::Closed);
                }
                Ok(count) => {
                    let bytes = chunk.get(..count).unwrap_or_default();
                    let within = tally(&mut self.captured, bytes, self.bound.bytes_max);
                    if !sink.as_ref().is_some_and(|sink| sink.is_only_reader()) {
                        self.captured.bytes.extend_from_slice(within);
                    }
                    if let Some(sink) = sink {
                        let all = self.bound.drops && sink.takes_excess();
                        let taken = if all { bytes } else { within };
                        if !taken.is_empty() {
                            sink.take(self.stream, taken);
                        }
                    }
                    if self.captured.truncated && !self.bound.drops {
                        return Ok(CaptureState::Overflowed);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The last process has closed the terminal.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                    self.pipe = None;
                    return Ok(CaptureState::Closed);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(CaptureState::Open)
    }

    /// Reads the rest of the pipe after the program died: at most what a pipe holds, since what it left
    /// may go on writing. The sink gets it even without room.
    pub fn drain(&mut self, sink: &mut Option<Box<dyn OutputSink>>) -> io::Result<CaptureState> {
        self.kept_open = None;
        let mut unthrottled =
            sink.take().map(|inner| Box::new(UnthrottledSink(inner)) as Box<dyn OutputSink>);
        let most = self.captured.bytes_total.saturating_add(PIPE_BYTES.unsigned_abs().into());
        let progress = loop {
            match self.read_available(&mut unthrottled)? {
                CaptureState::Open if self.captured.bytes_total < most && !self.is_drained()? => {}
                progress => break progress,
            }
        };
        *sink = unthrottled;
        Ok(progress)
    }

    fn is_drained(&self) -> io::Result<bool> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let Some(pipe) = &self.pipe else { return Ok(true) };
        Ok(poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)? == 0)
    }

    /// Returns the captured bytes.
    pub fn finish(self) -> CapturedStream {
        self.captured
    }

    /// Returns the captured bytes, and the pipe if somebody can write to it still.
    pub fn finish_open(self) -> (CapturedStream, Option<PipeEnd>) {
        (self.captured, self.pipe)
    }
}

/// Passes bytes to a sink without asking for room: a pipe holds a bounded amount, and there is no
/// later read.
struct UnthrottledSink(Box<dyn OutputSink>);

impl OutputSink for UnthrottledSink {
    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        self.0.take(stream, bytes);
    }

    fn takes_excess(&self) -> bool {
        self.0.takes_excess()
    }

    fn is_only_reader(&self) -> bool {
        self.0.is_only_reader()
    }

    fn after_program(self: Box<Self>) -> Option<Box<dyn OutputSink>> {
        self.0.after_program()
    }
}

/// Counts `bytes` and returns the part within the limit.
fn tally<'a>(captured: &mut CapturedStream, bytes: &'a [u8], bytes_max: Option<u64>) -> &'a [u8] {
    let room = bytes_max.map_or(u64::MAX, |max| max.saturating_sub(captured.bytes_total));
    let within = bytes.get(..usize::try_from(room).unwrap_or(usize::MAX)).unwrap_or(bytes);
    captured.bytes_total += bytes.len() as u64;
    captured.truncated |= within.len() < bytes.len();
    within
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::supervise::io::pipe::pipe_from_sandbox;

    /// Collects bytes, with or without the report holding them too.
    struct Kept {
        bytes: Arc<Mutex<Vec<u8>>>,
        only_reader: bool,
    }

    impl OutputSink for Kept {
        fn take(&mut self, _: Stream, bytes: &[u8]) {
            self.bytes.lock().unwrap().extend_from_slice(bytes);
        }

        fn is_only_reader(&self) -> bool {
            self.only_reader
        }
    }

    fn killing(bytes_max: Option<u64>) -> OutputBound {
        OutputBound { bytes_max, drops: false }
    }

    fn kept(chunks: &[&[u8]], bytes_max: Option<u64>) -> CapturedStream {
        let mut captured = CapturedStream::default();
        for chunk in chunks {
            let within = tally(&mut captured, chunk, bytes_max);
            captured.bytes.extend_from_slice(within);
        }
        captured
    }

    #[test]
    fn exactly_the_limit_is_kept_and_one_more_is_an_overflow() {
        let exact = kept(&[b"ab", b"cd"], Some(4));
        assert_eq!(
            (exact.bytes.as_slice(), exact.truncated, exact.bytes_total),
            (&b"abcd"[..], false, 4)
        );
        let over = kept(&[b"ab", b"cde"], Some(4));
        assert_eq!(
            (over.bytes.as_slice(), over.truncated, over.bytes_total),
            (&b"abcd"[..], true, 5)
        );
        assert!(!kept(&[&[0; 1000]], None).truncated);
        assert!(kept(&[b"a"], Some(0)).truncated);
    }

    #[test]
    fn a_capture_reads_to_the_end_of_the_pipe() {
        let (ours, theirs) = pipe_from_sandbox().unwrap();
        let mut writer = File::from(theirs.try_clone().unwrap());
        let mut capture = OutputCapture::new(Stream::Stdout, ours, theirs, killing(Some(100)));
        assert_eq!(capture.read_available(&mut None).unwrap(), CaptureState::Open);
        writer.write_all(b"hello").unwrap();
        drop(writer);
        // The end of all writers is not reported.
        assert_eq!(capture.read_available(&mut None).unwrap(), CaptureState::Open);
        assert_eq!(capture.drain(&mut None).unwrap(), CaptureState::Closed);
        assert_eq!(capture.finish().bytes, b"hello");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

        #[test]
        fn kept_and_counted_bytes_do_not_depend_on_the_writes(
            chunks in vec((vec(any::<u8>(), 0..3_000), any::<bool>()), 0..16),
            limit in prop_oneof![Just(None), (0..30_000_u64).prop_map(Some)],
            // Half of the cases have a limit within one byte of the length.
            from_length in prop_oneof![Just(None), (0..3_u64).prop_map(Some)],
            only_reader in any::<bool>(),
        ) {
            let all: Vec<u8> = chunks.iter().flat_map(|(chunk, _)| chunk).copied().collect();
            let length = all.len() as u64;
            let bytes_max = from_length.map(|from| (length + 1).saturating_sub(from)).or(limit);
            let (ours, theirs) = pipe_from_sandbox().unwrap();
            let mut writer = File::from(theirs.try_clone().unwrap());
            let taken = Arc::new(Mutex::new(Vec::new()));
            let kept = Kept { bytes: Arc::clone(&taken), only_reader };
            let mut sink: Option<Box<dyn OutputSink>> = Some(Box::new(kept));
            let mut capture = OutputCapture::new(Stream::Stdout, ours, theirs, killing(bytes_max));
            let mut overflowed = false;
            for (chunk, read_now) in &chunks {
                writer.write_all(chunk).unwrap();
                // As the io thread does: a stream that crossed its limit is not read again.
                if *read_now && !overflowed {
                    overflowed = capture.read_available(&mut sink).unwrap() == CaptureState::Overflowed;
                }
            }
            drop(writer);
            overflowed |= capture.drain(&mut sink).unwrap() == CaptureState::Overflowed;

            let captured = capture.finish();
            let within = usize::try_from(bytes_max.unwrap_or(length).min(length)).unwrap();
            prop_assert_eq!(&*taken.lock().unwrap(), &all[..within]);
            let held = if only_reader { &[][..] } else { &all[..within] };
            prop_assert_eq!(captured.bytes.as_slice(), held);
            prop_assert_eq!(captured.truncated, within < all.len());
            prop_assert_eq!(overflowed, captured.truncated);
            let counted = captured.bytes_total;
            prop_assert!(counted <= length && (captured.truncated || counted == length));
            prop_assert!(!captured.truncated || counted > within as u64);
        }
    }
}
