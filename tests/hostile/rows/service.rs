//! Attacks through the service's socket.

mod bodies;
mod crowd;
mod framing;
mod names;
mod soak;

use cofferdam_test_server::client::post;

use crate::Row;
use crate::probe::Probe;
use crate::target::Target;

pub const ROWS: &[Row] = &[
    Row {
        id: "E68",
        guarantee: "a message with ambiguous framing runs nothing, and slow clients delay no other",
        attack: framing::doubtful_messages,
    },
    Row {
        id: "E69",
        guarantee: "a body that is too large, too deep or invalid JSON is refused and runs nothing",
        attack: bodies::malformed,
    },
    Row {
        id: "E70",
        guarantee: "requests from pages of other origins are refused, and no page may read an answer",
        attack: names::other_origins,
    },
    Row {
        id: "E71",
        guarantee: "no path or slug leads beyond the existing routes and languages",
        attack: names::traversal,
    },
    Row {
        id: "E72",
        guarantee: "with every slot taken, ten times as many clients are refused at once and /health answers within 100 ms",
        attack: crowd::saturation,
    },
    Row {
        id: "E73",
        guarantee: "after hundreds of hostile runs the service and the host hold no more resources than before",
        attack: soak::of_hostile_runs,
    },
];

/// A request for a run that succeeds.
fn plain(target: &Target) -> Vec<u8> {
    post("", Probe::inline("def probe():\n    return None").body(target.slug()).to_string())
}
