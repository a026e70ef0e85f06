//! The service as a program that anybody may send bytes to.

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
        guarantee: "a message that two readers could end in two places runs nothing, and slow ones hold nobody up",
        attack: framing::doubtful_messages,
    },
    Row {
        id: "E69",
        guarantee: "a body that is too large, too deep or no plain JSON is refused and runs nothing",
        attack: bodies::malformed,
    },
    Row {
        id: "E70",
        guarantee: "what a browser's page of another origin posts is refused, and no page may read an answer",
        attack: names::other_origins,
    },
    Row {
        id: "E71",
        guarantee: "no path and no slug leads to anything but what is named",
        attack: names::traversal,
    },
    Row {
        id: "E72",
        guarantee: "with every slot taken, ten times as many clients are refused at once and health answers within 100 ms",
        attack: crowd::saturation,
    },
    Row {
        id: "E73",
        guarantee: "after hundreds of hostile runs the service and the host hold what they held before",
        attack: soak::of_hostile_runs,
    },
];

/// A request for a run that ends well.
fn plain(target: &Target) -> Vec<u8> {
    post("", Probe::inline("def probe():\n    return None").body(target.slug()).to_string())
}
