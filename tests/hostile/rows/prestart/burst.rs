//! Many runs while runtimes are started.

use cofferdam_test_server::host::inits;
use cofferdam_test_server::prestart::metric;
use cofferdam_test_server::service::wait_until;

use super::scene::{GOES_ON, PATIENCE, assert_leaves_nothing, prestarting, tried};
use crate::Unexercised;
use crate::rows::at_once;
use crate::target::Target;

/// Runs posted at once.
const BURST: usize = 50;
/// Room for some of the programs.
const MEMORY_BYTES_MAX: u32 = 4 << 20;

pub fn while_runtimes_start(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let prestart = format!("sleep 0.05; echo ready; {GOES_ON}");
    let service = prestarting(own, &prestart)
        .env("STANDBY_MAX", "8")
        .env("STANDBY_MEMORY_MAX", MEMORY_BYTES_MAX.to_string())
        .env("RUN_CONCURRENCY", BURST.to_string())
        .start();
    for round in 0..3 {
        at_once(BURST, |number| {
            let answer = service.run(&format!("echo {round} {number}; exit 4"));
            let finished = answer.finished();
            assert_eq!(finished.stdout, format!("{round} {number}\n"), "{answer:?}");
            assert_eq!(finished.exit_code, Some(4), "{answer:?}");
            let bytes = metric(&service, "bytes");
            assert!(bytes <= f64::from(MEMORY_BYTES_MAX), "{bytes} bytes wait");
        });
    }
    wait_until("a program that was started ahead", PATIENCE, || tried(&service) >= 1.0);
    // Eight of each kind wait, and one of each is being made.
    wait_until("the end of all runs", PATIENCE, || inits(service.pid()).len() <= 18);
    assert_leaves_nothing(service, &prestart);
    Ok(())
}
