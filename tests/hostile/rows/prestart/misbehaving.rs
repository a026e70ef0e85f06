//! Programs that do something else than get ready and wait.

use cofferdam_test_server::host::inits;
use cofferdam_test_server::prestart::{metric, warm_sandboxes};
use cofferdam_test_server::service::wait_until;

use super::scene::{
    GOES_ON, PATIENCE, assert_answers, assert_costs_no_run, assert_leaves_nothing, prestarting,
    tried,
};
use crate::Unexercised;
use crate::target::Target;

/// What the log says, whatever the reason.
const WITHOUT: &str = "its runs start without";

/// These never get ready, which the log and the metrics say.
#[track_caller]
fn are_refused(target: &Target, prestarts: &[&str]) -> Result<(), Unexercised> {
    let own = target.own()?;
    for prestart in prestarts {
        let service = assert_costs_no_run(own, prestart);
        wait_until(prestart, PATIENCE, || metric(&service, "boxes_failed_total") >= 1.0);
        assert_eq!(metric(&service, "boxes_used_total"), 0.0, "{prestart}");
        service.log.wait_for(WITHOUT);
        assert_leaves_nothing(service, prestart);
    }
    Ok(())
}

pub fn forks(target: &Target) -> Result<(), Unexercised> {
    let many = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 600 & done; \
                echo ready; read line";
    are_refused(target, &["f() { f | f & f; }; f", many])?;
    // A few that wait for the run are a runtime's own. They end with it.
    let own = target.own()?;
    let few = format!("sleep 600 & setsid sleep 600 & echo ready; {GOES_ON}");
    let service = assert_costs_no_run(own, &few);
    assert_leaves_nothing(service, &few);
    Ok(())
}

pub fn hangs(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    for prestart in
        ["exec sleep 600", "echo ready; exec sleep 600", "echo ready; while :; do :; done"]
    {
        let service = prestarting(own, prestart).start();
        assert_answers(&service, prestart);
        wait_until("the program", PATIENCE, || inits(service.pid()).len() >= 2);
        assert_answers(&service, prestart);
        assert_eq!(metric(&service, "boxes_used_total"), 0.0, "{prestart}");
        assert_leaves_nothing(service, prestart);
    }
    Ok(())
}

pub fn floods(target: &Target) -> Result<(), Unexercised> {
    are_refused(
        target,
        &[
            "yes",
            "yes >&2",
            "cat /dev/zero",
            "yes >/tmp/full; echo flooded; read line",
            "tail -c 900m /dev/zero; echo ready; read line",
        ],
    )
}

pub fn dies(target: &Target) -> Result<(), Unexercised> {
    are_refused(
        target,
        &[
            "exit 3",
            "kill -9 $$",
            "printf 'ready'; exit 0",
            "echo ready; exit 0",
            "no-such-program",
        ],
    )?;
    let own = target.own()?;
    // By then it counted as ready, perhaps.
    let later = "echo ready; (sleep 0.1; kill -9 $$) & read line";
    let service = prestarting(own, later).start();
    assert_answers(&service, later);
    wait_until(later, PATIENCE, || tried(&service) >= 1.0);
    wait_until("its death", PATIENCE, || warm_sandboxes(service.pid()).is_empty());
    assert_answers(&service, later);
    assert_eq!(metric(&service, "boxes_used_total"), 0.0, "{later}");
    assert_leaves_nothing(service, later);
    Ok(())
}

pub fn lies(target: &Target) -> Result<(), Unexercised> {
    are_refused(
        target,
        &[
            "echo ready; echo ready; read line",
            "echo Ready; read line",
            "echo warning >&2; echo ready; read line",
            "(sleep 0.05; echo late) & echo ready; wait; read line",
        ],
    )?;
    let own = target.own()?;
    // These wait, and the run finds posted files all the same.
    for trap in [
        "mkdir check; ln -s /tmp/elsewhere check/solution.py",
        "mkdir check; ln -s /proc/self/mem check/solution.py",
        "mkdir check; mkfifo check/solution.py",
        "mkdir -p check/solution.py/deeper",
        "ln -s /tmp check",
        "mkfifo check",
        "echo file >check",
        "mkdir check; echo other >check/solution.py; chmod 0 check/solution.py",
        "ulimit -n 32; ulimit -Hf 100000",
    ] {
        let prestart = format!("{trap}; echo ready; {GOES_ON}");
        let service = assert_costs_no_run(own, &prestart);
        assert_leaves_nothing(service, &prestart);
    }
    Ok(())
}
