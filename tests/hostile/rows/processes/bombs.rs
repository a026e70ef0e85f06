//! Fork bombs and thread bombs.

use cofferdam_test_server::client::{Answer, request};
use serde_json::Value;

use super::timed_out;
use crate::Unexercised;
use crate::marker::Marker;
use crate::observe::{number_of, observed, pairs, pairs_of};
use crate::probe::Probe;
use crate::rows::at_once;
use crate::target::Target;

/// Processes and threads a run may have, without the init and the harness.
const PROCESSES_MAX: u64 = 256;
/// The fewest processes that count as a bomb.
const BOMB_MIN: u64 = 200;
/// The processes that the shell bomb starts if nothing bounds it.
const SHELL_BOMB_ALL: u64 = 2047;
/// Two runs with this many processes exceed the limit of one user.
const HELD: u64 = 200;

#[track_caller]
fn assert_bounded(bomb: &str, forked: u64, refused: &str) {
    assert!((BOMB_MIN..=PROCESSES_MAX).contains(&forked), "{bomb}: {forked} processes");
    assert_eq!(refused, "EAGAIN", "{bomb}");
}

pub fn forks(target: &Target) -> Result<(), Unexercised> {
    let bomb = target.begin(&Probe::program("fork_bomb").arg("800"));
    let mut neighbours = 0;
    while bomb.is_going() || neighbours == 0 {
        assert_eq!(target.observe(&Probe::inline("def probe():\n    return 6 * 7")), 42);
        let health = target.ask(request("GET", "/health", ""));
        assert_eq!((health.status, health.body.as_str()), (200, "ok\n"), "/health");
        neighbours += 1;
    }
    let answer = bomb.answer();
    let told = pairs_of(&answer);
    assert_bounded("C", number_of(&told, "forked"), &told[1].1);

    let python = target.observe(&Probe::python("fork_bomb").arg(0));
    assert_eq!(python["refused"].as_array().unwrap().len(), 1, "{python}");
    let refused = python["refused"][0].as_str().unwrap();
    assert_bounded("Python", python["forked"].as_u64().unwrap(), refused);

    let shell = pairs(&target.observe(&Probe::sh("fork_bomb")));
    // A shell whose fork fails exits and frees a process, so more may start than fit at once.
    assert!((BOMB_MIN..SHELL_BOMB_ALL).contains(&number_of(&shell, "forked")), "{shell:?}");
    assert!(shell[1].1.contains("fork"), "{shell:?}");
    both_hold_many(target);
    Ok(())
}

/// The process limit of the user is counted for each run alone.
fn both_hold_many(target: &Target) {
    // On a loaded machine one run may end before the other begins.
    for seconds in [1, 3, 6] {
        let many = Probe::python("many").arg(HELD).arg(seconds);
        let both = at_once(2, |_| observed(&target.run(&many)));
        let times: Vec<_> =
            both.iter().map(|held| ["from", "to"].map(|at| held[at].as_f64().unwrap())).collect();
        let overlapped = times[0][0] < times[1][1] && times[1][0] < times[0][1];
        for held in &both {
            assert_eq!((held["held"].as_u64(), &held["refused"]), (Some(HELD), &Value::Null));
        }
        if overlapped {
            return;
        }
    }
    panic!("the two runs never overlapped");
}

pub fn sessions(target: &Target) -> Result<(), Unexercised> {
    let bomb =
        |way: &str, marker: &Marker| Probe::program("session_bomb").arg(way).arg(marker.word());
    let multiplied = |answer: &Answer| {
        let told = pairs_of(answer);
        assert!(number_of(&told, "forks") >= BOMB_MIN, "{told:?}");
    };
    let (left, stayed) = (Marker::new(), Marker::new());
    let answer = target.run(&bomb("leave", &left));
    assert_eq!(answer.finished().exit_code, Some(0), "{answer:?}");
    multiplied(&answer);
    if target.own().is_ok() {
        left.assert_gone();
    }
    multiplied(&timed_out(target, &bomb("stay", &stayed), 2));
    target.own()?;
    stayed.assert_gone();
    Ok(())
}

pub fn threads(target: &Target) -> Result<(), Unexercised> {
    for way in ["threads", "spread", "exec"] {
        let answer = target.run(&Probe::program("thread_bomb").arg(way));
        assert_eq!(answer.finished().exit_code, Some(0), "{answer:?}");
        let told = pairs_of(&answer);
        assert_bounded(way, number_of(&told, "started"), &told[1].1);
    }
    Ok(())
}
