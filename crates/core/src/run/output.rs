//! Output as it comes, for whoever wants it before the end.

use std::os::fd::BorrowedFd;

/// Which of the two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Takes a run's output while it runs. Called on the supervising thread, so it
/// must not block: one that cannot take more says so, and is asked again when
/// its descriptor becomes readable.
pub trait OutputSink: Send {
    /// Takes the next bytes of `stream`, already within the output limit.
    fn take(&mut self, stream: Stream, bytes: &[u8]);

    /// Whether nobody else wants the bytes: the report then counts them and
    /// holds none.
    fn is_only_reader(&self) -> bool {
        false
    }

    /// Whether `take` may be called now; while false the program's pipe fills
    /// and the program waits.
    fn has_room(&self) -> bool {
        true
    }

    /// A descriptor that is readable once there may be room again. Needed only
    /// from a sink that ever says it has none.
    fn room_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
