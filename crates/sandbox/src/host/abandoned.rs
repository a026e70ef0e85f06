//! Cleans up what killed services left on this host.

use std::time::Duration;

use super::state::{Instance, StateDirectory};
use crate::cgroup;
use cofferdam_core::SweepCounts;
use cofferdam_core::values::deadline::Deadline;

/// How long the cleanup of a killed service's sandboxes may take at start.
pub const SWEEP_WAIT: Duration = Duration::from_secs(10);
/// Kills and removes what killed services left. An instance whose cgroups cannot be removed stays
/// registered: the next start tries again.
pub fn sweep_abandoned(state: &StateDirectory) -> std::io::Result<SweepCounts> {
    let mut all = SweepCounts::default();
    for dead in state.abandoned()? {
        let Some(SweepCounts { sandboxes, processes, .. }) = sweep_instance(&dead) else {
            continue;
        };
        dead.unregister()?;
        all.servers += 1;
        all.sandboxes += sandboxes;
        all.processes += processes;
    }
    Ok(all)
}

/// Removes what one killed service left and logs it in one line. `None` if some of it stays.
fn sweep_instance(dead: &Instance) -> Option<SweepCounts> {
    // A sandbox has a directory in every hierarchy: the hierarchy with the most directories has all
    // sandboxes.
    let (mut sandboxes, mut processes, mut directories) = (0, 0, 0);
    let mut is_clear = true;
    for directory in dead.recorded_cgroups() {
        match cgroup::sweep(&directory, Deadline::after(SWEEP_WAIT)) {
            Ok(swept) => {
                sandboxes = sandboxes.max(swept.sandboxes);
                processes += swept.processes_killed;
                directories += swept.directories_removed;
            }
            Err(error) if error.errno == nix::errno::Errno::ENOENT => {}
            Err(error) => {
                is_clear = false;
                log::error!("sweep {}: {error}; the next start tries again", directory.display());
            }
        }
    }
    if directories > 0 {
        log::info!(
            "cleared what instance {} left: {sandboxes} sandboxes, {processes} processes killed, \
             {directories} cgroup directories removed",
            dead.id()
        );
    }
    is_clear.then_some(SweepCounts { servers: 1, sandboxes, processes })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_instance_whose_sweep_failed_stays_registered_for_the_next_one() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open_at(&place.path().join("state")).unwrap();
        let dead = state.register().unwrap();
        // Named like one of our groups, but it cannot be swept: it is on no cgroup file system.
        let group = place.path().join(format!("cofferdam-{}", dead.id()));
        fs::create_dir(&group).unwrap();
        dead.record_cgroups(std::slice::from_ref(&group)).unwrap();
        drop(dead);
        for _ in 0..2 {
            assert_eq!(sweep_abandoned(&state).unwrap(), SweepCounts::default());
            assert_eq!(state.abandoned().unwrap().len(), 1);
        }
        fs::remove_dir(&group).unwrap();
        assert_eq!(sweep_abandoned(&state).unwrap().servers, 1);
        assert_eq!(state.abandoned().unwrap().len(), 0);
    }
}
