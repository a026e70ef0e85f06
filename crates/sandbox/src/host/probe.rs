//! What this host can enforce: every control tried in a child, never inferred.

use std::time::Instant;

use super::remedy::{Remedy, remedy};
use super::state::StateDirectory;
use crate::cgroup::{CgroupTree, ControlSupport};
use crate::files::sandbox_fs::SandboxFs;
use crate::host::host_kind::{Environment, Place};
use crate::host::root_source::{HardLimits, SWEEP_WAIT, last_capability, mountpoint};
use crate::landlock::Landlock;
use crate::launch;
use crate::launch::Launch;
use crate::launch::unprivileged;
use crate::plan::ChildPlan;
use crate::plan::input::ROOT_FD;
use crate::plan::program::user_namespace_steps;
use crate::plan::restrictions::restrict_self_steps;
use crate::plan::rootfs::RootLayout;
use crate::plan::setup::HOSTNAME;
use crate::plan::steps::Step;
use crate::plan::steps::identity::IdentityStep;
use crate::plan::steps::mount::MountStep;
use crate::plan::steps::process::ProcessStep;
use crate::plan::steps::restrict::RestrictStep;
use crate::plan::steps::start::StartStep;
use crate::pool::host_id::HostId;
use crate::supervise::cleanup;
use crate::sys;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{Limits, SetupFailure, StdinSource};
use cofferdam_seccomp::profile::Profile;

/// The row of a box with everything in it.
const WHOLE_BOX: &str = "whole box";

/// How well a control is held here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// As asked for.
    Enforced,
    /// In a weaker way, which the reason names.
    Degraded,
    /// Not at all.
    Missing,
}

impl Status {
    /// The word of a report.
    pub fn word(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// One control and what came of trying it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Its name: `pid namespace`, `seccomp`, `memory`.
    pub name: &'static str,
    /// How well it is held.
    pub status: Status,
    /// Why, or by what.
    pub reason: String,
    /// What to change, where something should be.
    pub fix: String,
}

/// What `doctor` tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Every control, in the order a box is made.
    pub controls: Vec<Control>,
    /// What kind of place this is.
    pub environment: Environment,
}

impl Report {
    /// Whether everything is enforced.
    pub fn is_whole(&self) -> bool {
        self.controls.iter().all(|control| control.status == Status::Enforced)
    }

    /// What is told where nothing could be tried.
    pub fn untried(failure: &SetupFailure) -> Self {
        let place = Place::look();
        let found = tried("trials", Status::Missing, Err(failure.clone()));
        Self { controls: vec![found.with_fix(&place)], environment: place.environment }
    }

    /// Adds what came of making a whole box, all controls at once.
    pub fn add_whole_box(&mut self, made: Result<(), SetupFailure>) {
        self.controls.push(tried(WHOLE_BOX, Status::Missing, made).with_fix(&Place::look()));
    }

    /// Whether a box can be made here at all. Without one no service starts.
    pub fn makes_boxes(&self) -> bool {
        let whole = self.controls.iter().find(|control| control.name == WHOLE_BOX);
        whole.is_some_and(|control| control.status == Status::Enforced)
    }
}

/// Tries every control of a box with `profile`'s filter.
pub fn examine(profile: &Profile) -> Result<Report, SetupFailure> {
    let place = Place::look();
    let failed =
        |step: &'static str| move |error: std::io::Error| SetupFailure::from_io(step, &error);
    let state = StateDirectory::open().map_err(failed("state directory"))?;
    // Where it could have no namespace of its own, it is as it is elsewhere, and says what fails.
    let unprivileged = unprivileged::is_active().unwrap_or(false);
    let host_id = match unprivileged {
        true => HostId::shared(),
        false => HostId::acquire(&state).map_err(failed("host uid"))?,
    };
    let last_capability = last_capability().map_err(failed("read cap_last_cap"))?;
    let trial = Trial { host_id, unprivileged, last_capability };
    let mut found = trial.namespaces();
    found.extend(trial.root());
    found.extend(trial.privileges(profile));
    found.push(trial.landlock());
    found.push(process_limits().map_err(failed("read limits"))?);
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern");
    found.push(core_dumps(&pattern.map_err(failed("read core_pattern"))?));
    let instance = state.register().map_err(failed("state directory"))?;
    let mut tree = CgroupTree::open(instance.id())?;
    found.extend(cgroup_controls(&tree));
    let closed = tree.close(Deadline::after(SWEEP_WAIT));
    closed.map_err(|error| SetupFailure::from_words("cgroup", error.to_string()))?;
    instance.unregister().map_err(failed("state directory"))?;
    let controls = found.into_iter().map(|found| found.with_fix(&place)).collect();
    Ok(Report { controls, environment: place.environment })
}

/// A control before somebody says what to do about it.
struct Found {
    name: &'static str,
    status: Status,
    reason: String,
}

impl Found {
    fn with_fix(self, place: &Place) -> Control {
        let Self { name, status, reason } = self;
        if status == Status::Enforced {
            return Control { name, status, reason, fix: String::new() };
        }
        let Remedy { reasons, fix } = remedy(name, place);
        let reason = [vec![reason.as_str()], reasons].concat().join("; ");
        Control { name, status, reason, fix }
    }
}

/// A control that is there if its steps succeed, and `otherwise` if not.
fn tried(name: &'static str, otherwise: Status, result: Result<(), SetupFailure>) -> Found {
    match result {
        Ok(()) => Found { name, status: Status::Enforced, reason: "tried".to_owned() },
        Err(failure) => {
            let lacking = lacking_capabilities(&failure);
            let reason = format!("{}: {}{lacking}", failure.step, failure.reason);
            Found { name, status: otherwise, reason }
        }
    }
}

/// Where something was not permitted, the capabilities that may be why.
fn lacking_capabilities(failure: &SetupFailure) -> String {
    use caps::{CapSet, Capability, has_cap};
    const WANTED: [Capability; 6] = [
        Capability::CAP_SYS_ADMIN,
        Capability::CAP_NET_ADMIN,
        Capability::CAP_SETUID,
        Capability::CAP_SETGID,
        Capability::CAP_SETPCAP,
        Capability::CAP_CHOWN,
    ];
    if failure.errno != Some(libc::EPERM) {
        return String::new();
    }
    let lacks =
        |capability: &Capability| !has_cap(None, CapSet::Effective, *capability).unwrap_or(true);
    let lacking: Vec<String> =
        WANTED.iter().filter(|c| lacks(c)).map(ToString::to_string).collect();
    if lacking.is_empty() { String::new() } else { format!(" (without {})", lacking.join(", ")) }
}

/// What the trials share.
struct Trial {
    host_id: HostId,
    unprivileged: bool,
    last_capability: u32,
}

impl Trial {
    fn namespaces(&self) -> Vec<Found> {
        let alone = |flag, setup| attempt(flag, setup, Vec::new());
        let hostname = Step::Process(ProcessStep::SetHostname { name: HOSTNAME.to_owned() });
        let mut become_tenant = self.drop_uid();
        become_tenant.extend(user_namespace_steps(self.host_id.id()));
        let user = attempt(libc::CLONE_NEWPID | libc::CLONE_NEWNS, own_proc(), become_tenant);
        vec![
            tried("pid namespace", Status::Missing, alone(libc::CLONE_NEWPID, Vec::new())),
            tried(
                "mount namespace",
                Status::Missing,
                alone(libc::CLONE_NEWNS, vec![Step::Mount(MountStep::MakeMountsPrivate)]),
            ),
            tried("ipc namespace", Status::Missing, alone(libc::CLONE_NEWIPC, Vec::new())),
            tried("uts namespace", Status::Missing, alone(libc::CLONE_NEWUTS, vec![hostname])),
            tried(
                "net namespace",
                Status::Missing,
                alone(libc::CLONE_NEWNET, vec![Step::Process(ProcessStep::RaiseLoopback)]),
            ),
            tried(
                "cgroup namespace",
                Status::Missing,
                alone(0, vec![Step::Process(ProcessStep::UnshareCgroup)]),
            ),
            // Without it a program sees its host uid, which is still its own.
            tried("user namespace", Status::Degraded, user),
        ]
    }

    fn root(&self) -> Vec<Found> {
        let root = self
            .box_fs()
            .and_then(|fs| launch(launch::namespaces(false), enter_box()?, Vec::new(), Some(fs)));
        let proc = attempt(libc::CLONE_NEWPID | libc::CLONE_NEWNS, own_proc(), Vec::new());
        vec![
            tried("disk quota", Status::Missing, self.box_fs().map(drop)),
            tried("private root", Status::Missing, root),
            tried("private /proc", Status::Missing, proc),
        ]
    }

    /// The steps that give a program its host uid, if that is not the service's own.
    fn drop_uid(&self) -> Vec<Step> {
        let id = self.host_id.id();
        match self.unprivileged {
            true => Vec::new(),
            false => vec![
                Step::Identity(IdentityStep::DropGroups),
                Step::Identity(IdentityStep::SetGid { gid: id }),
                Step::Identity(IdentityStep::SetUid { uid: id }),
            ],
        }
    }

    fn uid(&self) -> Found {
        match (unprivileged::is_active(), self.unprivileged) {
            (Err(failure), _) => tried("uid", Status::Missing, Err(failure)),
            (_, true) => {
                let reason = unprivileged::NOT_ENFORCED.trim_start_matches("uid: ").to_owned();
                Found { name: "uid", status: Status::Degraded, reason }
            }
            _ => tried("uid", Status::Missing, attempt(0, Vec::new(), self.drop_uid())),
        }
    }

    fn privileges(&self, profile: &Profile) -> Vec<Found> {
        let program = |steps| attempt(0, Vec::new(), steps);
        let drop_capabilities = vec![
            Step::Identity(IdentityStep::DropBoundingSet { last_capability: self.last_capability }),
            Step::Identity(IdentityStep::ClearAmbientSet),
            Step::Identity(IdentityStep::ClearCapabilities),
        ];
        let filter = Step::Restrict(RestrictStep::InstallFilter {
            name: profile.name.clone(),
            program: profile.filter.bytes(),
        });
        vec![
            self.uid(),
            tried("capabilities", Status::Missing, program(drop_capabilities)),
            tried(
                "no_new_privs",
                Status::Missing,
                program(vec![Step::Identity(IdentityStep::NoNewPrivileges)]),
            ),
            tried(
                "seccomp",
                Status::Missing,
                program(vec![Step::Identity(IdentityStep::NoNewPrivileges), filter]),
            ),
        ]
    }

    /// The rules in a box's root of their own, and what only they refuse there.
    fn landlock(&self) -> Found {
        let name = "landlock";
        let landlock = match Landlock::from_answer(sys::landlock_abi()) {
            Ok(landlock) => landlock,
            Err(reason) => return Found { name, status: Status::Missing, reason },
        };
        let result = self.box_fs().and_then(|fs| {
            let mut setup = enter_box()?;
            let (handled, scoped) = (landlock.handled(), landlock.scoped());
            setup.push(Step::Restrict(RestrictStep::CreateRules { handled, scoped }));
            let (path, allowed) = (c"/".to_owned(), landlock.readable());
            setup.push(Step::Restrict(RestrictStep::AllowBelow { path, allowed, fd: ROOT_FD }));
            let mut program = vec![Step::Identity(IdentityStep::NoNewPrivileges)];
            program.extend(restrict_self_steps(landlock, c"/.refused"));
            launch(launch::namespaces(false), setup, program, Some(fs))
        });
        let found = tried(name, Status::Missing, result);
        let is_enforced = found.status == Status::Enforced;
        let reason = if is_enforced { format!("ABI {}", landlock.abi()) } else { found.reason };
        Found { reason, ..found }
    }

    fn box_fs(&self) -> Result<SandboxFs, SetupFailure> {
        SandboxFs::create(&RootLayout::default(), &Limits::default(), self.host_id.id())
    }
}

/// Whether the default limits fit under the hard limits this process inherited.
fn process_limits() -> std::io::Result<Found> {
    let mut lowered = Vec::new();
    HardLimits::read()?.clamp(&mut Limits::default(), &mut lowered);
    let status = if lowered.is_empty() { Status::Enforced } else { Status::Degraded };
    let reason = if lowered.is_empty() { "tried".to_owned() } else { lowered.join("; ") };
    Ok(Found { name: "process limits", status, reason })
}

/// Whether a crash stays in the box. No process limit keeps one from a program or
/// a socket of the host's: the kernel skips those for a limit of 1 byte, which
/// any program may lower to 0.
fn core_dumps(pattern: &str) -> Found {
    let (status, reason) = match pattern.as_bytes().first() {
        Some(b'|' | b'@') => (
            Status::Degraded,
            format!("a crashed program is handed to the host's {}", pattern.trim()),
        ),
        _ => (Status::Enforced, "to files, which no box writes".to_owned()),
    };
    Found { name: "core dumps", status, reason }
}

fn cgroup_controls(tree: &CgroupTree) -> Vec<Found> {
    let support = tree.support();
    let found = |name, control: &ControlSupport, otherwise| {
        let reason = control.reason.clone();
        match (control.by, reason) {
            (Some(version), None) => {
                Found { name, status: Status::Enforced, reason: version.word().to_owned() }
            }
            (Some(_), Some(reason)) => Found { name, status: Status::Degraded, reason },
            (None, reason) => Found { name, status: otherwise, reason: reason.unwrap_or_default() },
        }
    };
    vec![
        found("memory", &support.memory, Status::Missing),
        // The process limit still bounds what one host uid has.
        found("processes", &support.processes, Status::Degraded),
        found("cpu", &support.cpu, Status::Missing),
        // Counted from what was reaped, and killed through the init, where there is no cgroup.
        found("cpu time", &support.cpu_time, Status::Degraded),
        found("cgroup kill", &support.kill, Status::Degraded),
    ]
}

/// The steps that make the box's file system the root.
fn enter_box() -> Result<Vec<Step>, SetupFailure> {
    let mountpoint = mountpoint().map_err(|error| SetupFailure::from_io("mount point", &error))?;
    Ok(vec![
        Step::Mount(MountStep::MakeMountsPrivate),
        Step::Mount(MountStep::EnterRoot { fd: ROOT_FD, mountpoint }),
        Step::Mount(MountStep::PivotRoot),
    ])
}

/// The steps that mount `/proc` over the host's, in a mount namespace of one's own.
fn own_proc() -> Vec<Step> {
    vec![
        Step::Mount(MountStep::MakeMountsPrivate),
        Step::Process(ProcessStep::EnterDirectory { path: c"/".to_owned() }),
        Step::Mount(MountStep::MountProc),
    ]
}

fn attempt(namespaces: i32, setup: Vec<Step>, program: Vec<Step>) -> Result<(), SetupFailure> {
    launch(namespaces, setup, program, None)
}

/// Walks the steps in a child that ends where a program would be executed.
fn launch(
    namespaces: i32,
    setup: Vec<Step>,
    mut program: Vec<Step>,
    fs: Option<SandboxFs>,
) -> Result<(), SetupFailure> {
    program.push(Step::Start(StartStep::ReportReady));
    let trial = Launch {
        plan: ChildPlan { setup, program, guard: Vec::new() },
        namespaces,
        fs,
        group: None,
        net: None,
        extra: Vec::new(),
        stdin: StdinSource::Null,
        limits: &Limits::default(),
        prepare_began: Instant::now(),
        retained: Retained::default(),
        disposal: cleanup::Sender::default(),
    };
    trial.spawn_init()?.run_trial()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_pattern_that_leaves_the_box_is_told() {
        for (pattern, status) in [
            ("core\n", Status::Enforced),
            ("/var/crash/%e.%p\n", Status::Enforced),
            ("\n", Status::Enforced),
            ("|/usr/lib/systemd/systemd-coredump %P %u\n", Status::Degraded),
            ("@/run/coredump.socket\n", Status::Degraded),
        ] {
            assert_eq!(core_dumps(pattern).status, status, "{pattern:?}");
        }
    }

    /// One that did not wait would fail first, now and then.
    #[test]
    fn no_program_goes_on_before_its_init_has_let_go_of_it() {
        for _ in 0..20 {
            let elsewhere =
                Step::Process(ProcessStep::EnterDirectory { path: c"/absent".to_owned() });
            let trial = Launch {
                plan: ChildPlan {
                    setup: vec![Step::Start(StartStep::HoldProgram)],
                    program: vec![
                        Step::Start(StartStep::AwaitGuard),
                        elsewhere,
                        Step::Start(StartStep::ReportReady),
                    ],
                    // Fails: the init dies with the lock, and its program with it.
                    guard: vec![Step::Process(ProcessStep::JoinCgroup { fd: 99 })],
                },
                namespaces: libc::CLONE_NEWPID,
                fs: None,
                group: None,
                net: None,
                extra: Vec::new(),
                stdin: StdinSource::Null,
                limits: &Limits::default(),
                prepare_began: Instant::now(),
                retained: Retained::default(),
                disposal: cleanup::Sender::default(),
            };
            let failure = trial.spawn_init().unwrap().run_trial().unwrap_err();
            assert_eq!(failure.to_string(), "sandbox: join cgroup: EBADF");
        }
    }

    /// The proof that every run's plan holds, where there is nothing to prove.
    #[test]
    fn the_landlock_proof_fails_where_no_rules_are_obeyed() {
        let fs = SandboxFs::create(&RootLayout::default(), &Limits::default(), 0).unwrap();
        let proof = Step::Restrict(RestrictStep::ProveRules { path: c"/.refused".to_owned() });
        let failure =
            launch(launch::namespaces(false), enter_box().unwrap(), vec![proof], Some(fs))
                .unwrap_err();
        assert_eq!(failure.to_string(), "sandbox: landlock proof: ENOTRECOVERABLE");
    }
}
