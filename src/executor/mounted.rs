//! Programs over a workspace that outlives their sandboxes, some of which are prepared.
//!
//! A prepared one has everything but the program's arguments, variables, working directory and times.

use std::time::Instant;

use crate::executor::factory::{ReadySandbox, SandboxFactory};
use crate::executor::mounted_key::{MountedIdentity, MountedKey, MountedView};
use crate::executor::standby_pool::LiveRun;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{RunSpec, SetupFailure};
use cofferdam_sandbox::engine::{RunningSandbox, SentProgram, program_to_send};

/// A program over a mounted workspace that the standby pool knows of, with a prepared sandbox if there
/// is one.
#[derive(Debug)]
pub struct MountedRun {
    key: MountedKey,
    live: LiveRun,
    prepared: Option<(ReadySandbox, SentProgram)>,
}

impl MountedRun {
    /// Begins the program of `spec`, unless the pool prepares none for such programs. `begin` tells
    /// the pool of it.
    pub(super) fn begin(
        identity: MountedIdentity,
        spec: &RunSpec,
        begin: impl FnOnce(MountedKey) -> LiveRun,
    ) -> Option<Self> {
        let key = MountedKey::of(identity, spec)?;
        let program = program_to_send(spec)?;
        let live = begin(key.clone());
        let prepared = live.take().map(|ready| (ready, program));
        Some(Self { key, live, prepared })
    }

    /// Whether it has a prepared sandbox, which has its mounts already.
    pub fn is_prepared(&self) -> bool {
        self.prepared.is_some()
    }

    /// Resumes the prepared sandbox for `spec`, if there is one and it fits.
    pub(super) fn resume(
        &mut self,
        factory: &SandboxFactory,
        spec: &RunSpec,
        retained: Retained,
        began: Instant,
    ) -> Option<Result<RunningSandbox, SetupFailure>> {
        let (ready, program) = self.prepared.take()?;
        let fits = self.key.fits(spec) && program_to_send(spec).as_ref() == Some(&program);
        fits.then(|| factory.resume_with(ready, program, spec, retained, began))
    }

    /// Mounts for a new sandbox in place of one that did not start its program, which the pool is told.
    pub(super) fn view(&self) -> Result<Option<MountedView>, SetupFailure> {
        self.live.discard_others();
        self.key.view()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};
    use std::time::Duration;

    use super::*;
    use crate::executor::mounted_key::MountSource;
    use crate::executor::pool_key::PoolKey;
    use crate::executor::pool_policy::{PoolAction, PoolPolicy, PoolTake, PrepareResult};
    use cofferdam_core::{ExcessOutput, Limits, ProgramFile, StdinSource};

    const NONE: [u32; 0] = [];

    #[derive(Debug)]
    struct NoMounts;

    impl MountSource for NoMounts {
        fn view(&self) -> Result<Option<MountedView>, SetupFailure> {
            Ok(None)
        }
    }

    fn key(number: u64, spec: &RunSpec) -> Option<MountedKey> {
        let source: Weak<dyn MountSource> = Weak::<NoMounts>::new();
        MountedKey::of(MountedIdentity { number, source }, spec)
    }

    #[test]
    fn programs_share_a_key_if_they_differ_only_in_what_is_sent() {
        let of = |change: fn(&mut RunSpec)| {
            let mut spec = RunSpec::default();
            change(&mut spec);
            key(1, &spec)
        };
        let plain = of(|_| {});
        assert!(plain.is_some() && key(2, &RunSpec::default()) != plain);
        let sent: [fn(&mut RunSpec); 4] = [
            |spec| spec.argv = vec![c"a".to_owned()],
            |spec| spec.env = vec![c"A=1".to_owned()],
            |spec| spec.workdir = "/tmp".into(),
            |spec| {
                spec.limits = Limits::default().with_wall(Duration::from_secs(77));
                spec.limits.cpu_total_max = Some(Duration::from_secs(7));
            },
        ];
        for (index, change) in sent.into_iter().enumerate() {
            assert_eq!(of(change), plain, "{index}");
        }
        let fixed: [fn(&mut RunSpec); 5] = [
            |spec| spec.limits.memory_bytes_max = 1,
            |spec| spec.limits.processes_max = 1,
            |spec| spec.limits.cpus_milli_max = Some(1),
            |spec| spec.limits.open_files_max = 1,
            |spec| {
                spec.excess_output =
                    ExcessOutput::Dropped { stdout_bytes_max: 1, stderr_bytes_max: 1 };
            },
        ];
        for (index, change) in fixed.into_iter().enumerate() {
            let other = of(change);
            assert!(other.is_some() && other != plain, "{index}");
        }
        let own: [fn(&mut RunSpec); 2] = [
            |spec| spec.stdin = StdinSource::Bytes(Vec::new()),
            |spec| spec.program = ProgramFile::At(c"/a".to_owned()),
        ];
        for (index, change) in own.into_iter().enumerate() {
            assert_eq!(of(change), None, "{index}");
        }
    }

    #[test]
    fn one_sandbox_is_prepared_from_the_second_program_on_and_kept_for_five_seconds() {
        let mut policy = PoolPolicy::<u32>::new(9, 2);
        let key = Arc::new(PoolKey::Mounted(key(1, &RunSpec::default()).unwrap()));
        let mut now = Instant::now();
        let mut run = |policy: &mut PoolPolicy<u32>| {
            assert_eq!(policy.begin(&key, now), NONE);
            policy.end(&key, now, now);
            now += Duration::from_millis(20);
            now
        };
        let now = run(&mut policy);
        assert!(matches!(policy.next(now), PoolAction::Wait(_)), "after the first");
        let now = run(&mut policy);
        let PoolAction::Prepare(asked) = policy.next(now) else { panic!("after the second") };
        assert_eq!(policy.prepared(&asked, PrepareResult::Prepared(7), now), None);
        assert!(matches!(policy.next(now), PoolAction::Wait(_)), "one is enough");
        assert_eq!(policy.clear_all(|key| key.is_of_workspace(2)), NONE);
        let later = now + Duration::from_secs(4);
        assert!(matches!(policy.next(later), PoolAction::Wait(_)));
        let later = now + Duration::from_secs(5);
        assert!(matches!(policy.next(later), PoolAction::Discard(gone) if gone == [7]));
        assert!(matches!(policy.take(&asked), PoolTake::Nothing));
    }

    #[test]
    fn a_cleared_workspace_is_prepared_for_again_and_a_forgotten_one_is_not() {
        let mut policy = PoolPolicy::<u32>::new(9, 2);
        let key = Arc::new(PoolKey::Mounted(key(1, &RunSpec::default()).unwrap()));
        let mut now = Instant::now();
        for _ in 0..2 {
            policy.begin(&key, now);
            policy.end(&key, now, now);
            now += Duration::from_millis(20);
        }
        let PoolAction::Prepare(asked) = policy.next(now) else { panic!("nothing to prepare") };
        assert_eq!(policy.prepared(&asked, PrepareResult::Prepared(7), now), None);
        assert_eq!(policy.clear_all(|key| key.is_of_workspace(1)), [7]);
        assert!(matches!(policy.next(now), PoolAction::Prepare(_)));
        assert_eq!(policy.forget(|key| key.is_of_workspace(1)), NONE);
        // That was in preparation meanwhile.
        assert_eq!(policy.prepared(&asked, PrepareResult::Prepared(8), now), Some(8));
        assert!(matches!(policy.next(now), PoolAction::Wait(_)));
    }
}
