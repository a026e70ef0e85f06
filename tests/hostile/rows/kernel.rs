//! The interface of the kernel.

use crate::observe::pairs;
use crate::probe::Probe;
use crate::target::Target;
use crate::{Row, Unexercised};

pub const ROWS: &[Row] = &[Row {
    id: "D55",
    guarantee: "/proc shows a run its own processes and nothing of the host",
    attack: proc_shows_nothing_of_the_host,
}];

fn proc_shows_nothing_of_the_host(target: &Target) -> Result<(), Unexercised> {
    let observed = target.observe(&Probe::sh("proc"));
    let expected = [("others", "0"), ("kcore", "refused")];
    for (name, answer) in expected {
        let found = pairs(&observed).into_iter().find(|(key, _)| key == name);
        assert_eq!(found.map(|(_, answer)| answer).as_deref(), Some(answer), "{name}");
    }
    Ok(())
}
