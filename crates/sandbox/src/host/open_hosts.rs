//! The sandbox hosts that this process has open. Each clears what it leaves when it is dropped, which may be on a
//! thread that ends a little after its work.

use std::sync::LazyLock;

use cofferdam_core::sync::in_flight::InFlight;
pub(crate) use cofferdam_core::sync::in_flight::InFlightGuard;
use cofferdam_core::values::deadline::Deadline;

static OPEN: LazyLock<InFlight> = LazyLock::new(InFlight::default);

/// Counts a host until the guard is dropped. As its last field, that is when all of it is.
pub(crate) fn count_open() -> InFlightGuard {
    OPEN.enter()
}

/// Waits until every sandbox host of this process is closed. Returns false if that takes longer than `deadline`.
pub fn await_closed(deadline: Deadline) -> bool {
    OPEN.wait_none(deadline)
}
