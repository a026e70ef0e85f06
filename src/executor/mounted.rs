//! Sandboxes over a workspace that outlives them, some of them prepared.
//!
//! A prepared one has everything but the program's arguments, variables, working directory and times.

use std::fmt::Debug;
use std::sync::Weak;
use std::time::{Duration, Instant};

use crate::executor::factory::{ReadySandbox, SandboxFactory};
use crate::executor::standby_pool::LiveRun;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{
    ExcessOutput, Limits, MountedWorkspace, ProgramFile, RunSpec, SetupFailure, StdinSource,
    WorkspaceFill,
};
use cofferdam_sandbox::engine::{HostId, RunningSandbox, SentProgram, program_to_send};

/// The mounts of a workspace for one sandbox, and the host id that all its sandboxes share.
#[derive(Debug)]
pub struct WorkspaceView {
    /// The mounts.
    pub mounts: MountedWorkspace,
    /// The host id.
    pub host_id: HostId,
    /// What lends the host id, until the sandbox is dead.
    pub lender: Retained,
}

/// Where sandboxes of a workspace get their mounts from.
pub trait MountSource: Debug + Send + Sync {
    /// Mounts for one more sandbox, without waiting. None while the mounts are exchanged.
    ///
    /// # Errors
    /// The kernel refused a step.
    fn view(&self) -> Result<Option<WorkspaceView>, SetupFailure>;
}

/// A workspace, as the standby pool knows it.
#[derive(Debug, Clone)]
pub struct MountedIdentity {
    /// The number of its file system: no other has it.
    pub number: u64,
    /// Gives the mounts while the workspace lives.
    pub source: Weak<dyn MountSource>,
}

/// The key of programs over a mounted workspace.
#[derive(Debug, Clone)]
pub struct MountedKey {
    identity: MountedIdentity,
    limits: Limits,
    excess_output: ExcessOutput,
}

/// No two file systems have the same number, so their sources need not be compared.
impl PartialEq for MountedKey {
    fn eq(&self, other: &Self) -> bool {
        let key = |key: &Self| (key.identity.number, key.excess_output);
        key(self) == key(other) && self.limits == other.limits
    }
}

impl Eq for MountedKey {}

impl MountedKey {
    /// The key of a program in that workspace. Returns nothing for one with its own mounts, input,
    /// terminal or program file.
    fn of(identity: MountedIdentity, spec: &RunSpec) -> Option<Self> {
        let (StdinSource::Null, ProgramFile::Named) = (&spec.stdin, &spec.program) else {
            return None;
        };
        if !spec.binds.is_empty() || !spec.tmpfs.is_empty() || spec.terminal.is_some() {
            return None;
        }
        Some(Self {
            identity,
            limits: Limits { cpu_total_max: None, ..spec.limits.clone().with_wall(Duration::ZERO) },
            excess_output: spec.excess_output,
        })
    }

    /// The number of the workspace's file system.
    pub fn number(&self) -> u64 {
        self.identity.number
    }

    /// Mounts for a sandbox. None if the workspace is gone, or its mounts are exchanged.
    pub fn view(&self) -> Result<Option<WorkspaceView>, SetupFailure> {
        self.identity.source.upgrade().map_or(Ok(None), |source| source.view())
    }

    /// What sandboxes of this key are created with.
    pub fn spec(&self, mounts: MountedWorkspace) -> RunSpec {
        RunSpec {
            workdir: "/".into(),
            limits: self.limits.clone(),
            excess_output: self.excess_output,
            workspace: WorkspaceFill::Mounted(mounts),
            ..RunSpec::default()
        }
    }
}

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
        let fits = MountedKey::of(self.key.identity.clone(), spec).as_ref() == Some(&self.key)
            && program_to_send(spec).as_ref() == Some(&program);
        fits.then(|| factory.resume_with(ready, program, spec.limits.clone(), retained, began))
    }

    /// Mounts for a new sandbox in place of one that did not start its program, which the pool is told.
    pub(super) fn view(&self) -> Result<Option<WorkspaceView>, SetupFailure> {
        self.live.discard_others();
        self.key.view()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::executor::pool_key::PoolKey;
    use crate::executor::pool_policy::{PoolAction, PoolPolicy, PoolTake, PrepareResult};

    const NONE: [u32; 0] = [];

    #[derive(Debug)]
    struct NoMounts;

    impl MountSource for NoMounts {
        fn view(&self) -> Result<Option<WorkspaceView>, SetupFailure> {
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
