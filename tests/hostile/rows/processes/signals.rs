//! Signals of one run against the processes of another.

use serde_json::json;

use crate::Unexercised;
use crate::observe::{number_of, observed, pairs_of};
use crate::probe::Probe;
use crate::target::Target;

/// At most the run's own init, a shell, and the program's parent.
const OTHERS_MAX: u64 = 4;
/// The signal that the sibling sends itself.
const SIGUSR1: i32 = 10;

pub fn to_everybody(target: &Target) -> Result<(), Unexercised> {
    // On a loaded machine the sibling may end before the attack does.
    for seconds in [3, 6, 12] {
        let sibling = target.begin(&Probe::python("sibling").arg(seconds));
        let told = pairs_of(&target.run(&Probe::program("signals")));
        for way in ["kill", "tkill", "tgkill", "sigqueue", "pidfd"] {
            let others = number_of(&told, way);
            assert!(others <= OTHERS_MAX, "{way} finds {others} processes");
        }
        assert_eq!(told.last().unwrap(), &("self".to_owned(), "0".to_owned()));
        // The probe may have killed itself.
        let deadly = target.run(&Probe::program("signals").arg("kill"));
        assert_eq!(deadly.status, 200, "{deadly:?}");
        let was_there = sibling.is_going();
        let found = observed(&sibling.answer());
        assert_eq!(found, json!({ "received": [SIGUSR1], "child_ended": false }));
        if was_there {
            return Ok(());
        }
    }
    panic!("the sibling never lasted for the whole attack");
}
