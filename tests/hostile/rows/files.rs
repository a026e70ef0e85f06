//! A parent with privileges against files that a tenant controls.

use crate::probe::Probe;
use crate::target::Target;
use crate::{Row, Unexercised};

pub const ROWS: &[Row] = &[Row {
    id: "A3",
    guarantee: "a link at a path the parent writes for a run leads it nowhere",
    attack: links_at_written_paths,
}];

fn links_at_written_paths(target: &Target) -> Result<(), Unexercised> {
    let sentinel = target.own()?.sentinel.path();
    let replaced = target.observe(&Probe::python("links_at_written_paths").arg(sentinel.to_str()));
    assert_eq!(replaced["links"].as_array().map(Vec::len), Some(3), "{replaced}");
    Ok(())
}
