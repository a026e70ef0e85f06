//! The trial of each control, in a child process.

use crate::cgroup::{CgroupTree, ControlSupport};
use crate::files::sandbox_fs::SandboxFs;
use crate::host::hard_limits::HardLimits;
use crate::host::root_source::mountpoint;
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
use crate::sys;
use cofferdam_core::{Limits, SetupFailure};
use cofferdam_seccomp::profile::Profile;

/// How well this host enforces a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforcement {
    /// As required.
    Enforced,
    /// In a weaker way, named by the reason.
    Degraded,
    /// Not at all.
    Missing,
}

impl Enforcement {
    /// The word in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Degraded => "degraded",
            Self::Missing => "missing",
        }
    }
}

/// What the trial of one control showed.
pub(super) struct ProbeResult {
    pub(super) name: &'static str,
    pub(super) status: Enforcement,
    pub(super) reason: String,
}

/// The result of a trial: enforced if it succeeded, `otherwise` if not.
pub(super) fn tried(
    name: &'static str,
    otherwise: Enforcement,
    result: Result<(), SetupFailure>,
) -> ProbeResult {
    match result {
        Ok(()) => ProbeResult { name, status: Enforcement::Enforced, reason: "tried".to_owned() },
        Err(failure) => {
            let lacking = lacking_capabilities(&failure);
            let reason = format!("{}: {}{lacking}", failure.step, failure.reason);
            ProbeResult { name, status: otherwise, reason }
        }
    }
}

/// After EPERM, the missing capabilities that may be the cause.
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

/// What all trials share.
pub(super) struct Trial {
    pub(super) host_id: HostId,
    pub(super) unprivileged: bool,
    pub(super) last_capability: u32,
}

impl Trial {
    pub(super) fn namespaces(&self) -> Vec<ProbeResult> {
        let alone = |flag, setup| attempt(flag, setup, Vec::new());
        let hostname = Step::Process(ProcessStep::SetHostname { name: HOSTNAME.to_owned() });
        let mut become_tenant = self.drop_uid();
        become_tenant.extend(user_namespace_steps(self.host_id.id()));
        let user = attempt(libc::CLONE_NEWPID | libc::CLONE_NEWNS, own_proc(), become_tenant);
        vec![
            tried("pid namespace", Enforcement::Missing, alone(libc::CLONE_NEWPID, Vec::new())),
            tried(
                "mount namespace",
                Enforcement::Missing,
                alone(libc::CLONE_NEWNS, vec![Step::Mount(MountStep::MakeMountsPrivate)]),
            ),
            tried("ipc namespace", Enforcement::Missing, alone(libc::CLONE_NEWIPC, Vec::new())),
            tried("uts namespace", Enforcement::Missing, alone(libc::CLONE_NEWUTS, vec![hostname])),
            tried(
                "net namespace",
                Enforcement::Missing,
                alone(libc::CLONE_NEWNET, vec![Step::Process(ProcessStep::RaiseLoopback)]),
            ),
            tried(
                "cgroup namespace",
                Enforcement::Missing,
                alone(0, vec![Step::Process(ProcessStep::UnshareCgroup)]),
            ),
            // Without it a program sees its host uid, which no other sandbox has.
            tried("user namespace", Enforcement::Degraded, user),
        ]
    }

    pub(super) fn root(&self) -> Vec<ProbeResult> {
        let root = self.sandbox_fs().and_then(|fs| {
            launch(launch::namespaces(false), enter_sandbox()?, Vec::new(), Some(fs))
        });
        let proc = attempt(libc::CLONE_NEWPID | libc::CLONE_NEWNS, own_proc(), Vec::new());
        vec![
            tried("disk quota", Enforcement::Missing, self.sandbox_fs().map(drop)),
            tried("private root", Enforcement::Missing, root),
            tried("private /proc", Enforcement::Missing, proc),
        ]
    }

    /// The steps that give a program its host uid, if it differs from the service's uid.
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

    fn uid(&self) -> ProbeResult {
        match (unprivileged::is_active(), self.unprivileged) {
            (Err(failure), _) => tried("uid", Enforcement::Missing, Err(failure)),
            (_, true) => {
                let reason = unprivileged::NOT_ENFORCED.trim_start_matches("uid: ").to_owned();
                ProbeResult { name: "uid", status: Enforcement::Degraded, reason }
            }
            _ => tried("uid", Enforcement::Missing, attempt(0, Vec::new(), self.drop_uid())),
        }
    }

    pub(super) fn privileges(&self, profile: &Profile) -> Vec<ProbeResult> {
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
            tried("capabilities", Enforcement::Missing, program(drop_capabilities)),
            tried(
                "no_new_privs",
                Enforcement::Missing,
                program(vec![Step::Identity(IdentityStep::NoNewPrivileges)]),
            ),
            tried(
                "seccomp",
                Enforcement::Missing,
                program(vec![Step::Identity(IdentityStep::NoNewPrivileges), filter]),
            ),
        ]
    }

    /// Tries the rules in a private root, with an access that only they refuse.
    pub(super) fn landlock(&self) -> ProbeResult {
        let name = "landlock";
        let landlock = match Landlock::from_answer(sys::landlock_abi()) {
            Ok(landlock) => landlock,
            Err(reason) => return ProbeResult { name, status: Enforcement::Missing, reason },
        };
        let result = self.sandbox_fs().and_then(|fs| {
            let mut setup = enter_sandbox()?;
            let (handled, scoped) = (landlock.handled(), landlock.scoped());
            setup.push(Step::Restrict(RestrictStep::CreateRules { handled, scoped }));
            let (path, allowed) = (c"/".to_owned(), landlock.readable());
            setup.push(Step::Restrict(RestrictStep::AllowBelow { path, allowed, fd: ROOT_FD }));
            let mut program = vec![Step::Identity(IdentityStep::NoNewPrivileges)];
            program.extend(restrict_self_steps(landlock, c"/.refused"));
            launch(launch::namespaces(false), setup, program, Some(fs))
        });
        let found = tried(name, Enforcement::Missing, result);
        let is_enforced = found.status == Enforcement::Enforced;
        let reason = if is_enforced { format!("ABI {}", landlock.abi()) } else { found.reason };
        ProbeResult { reason, ..found }
    }

    fn sandbox_fs(&self) -> Result<SandboxFs, SetupFailure> {
        SandboxFs::create(&RootLayout::default(), &Limits::default(), self.host_id.id())
    }
}

/// Whether the default limits are within the inherited hard limits.
pub(super) fn process_limits() -> std::io::Result<ProbeResult> {
    let mut lowered = Vec::new();
    HardLimits::read()?.clamp(&mut Limits::default(), &mut lowered);
    let status = if lowered.is_empty() { Enforcement::Enforced } else { Enforcement::Degraded };
    let reason = if lowered.is_empty() { "tried".to_owned() } else { lowered.join("; ") };
    Ok(ProbeResult { name: "process limits", status, reason })
}

/// Whether a crash stays in the sandbox. No process limit keeps the crash from a program or socket
/// of the host: the kernel skips those only for a limit of 1 byte, which any program may lower to
/// 0.
pub(super) fn core_dumps(pattern: &str) -> ProbeResult {
    let (status, reason) = match pattern.as_bytes().first() {
        Some(b'|' | b'@') => (
            Enforcement::Degraded,
            format!("a crashed program is handed to the host's {}", pattern.trim()),
        ),
        _ => (Enforcement::Enforced, "to files, which no sandbox writes".to_owned()),
    };
    ProbeResult { name: "core dumps", status, reason }
}

pub(super) fn cgroup_controls(tree: &CgroupTree) -> Vec<ProbeResult> {
    let support = tree.support();
    let found = |name, control: &ControlSupport, otherwise| {
        let reason = control.reason.clone();
        match (control.by, reason) {
            (Some(version), None) => ProbeResult {
                name,
                status: Enforcement::Enforced,
                reason: version.word().to_owned(),
            },
            (Some(_), Some(reason)) => ProbeResult { name, status: Enforcement::Degraded, reason },
            (None, reason) => {
                ProbeResult { name, status: otherwise, reason: reason.unwrap_or_default() }
            }
        }
    };
    vec![
        found("memory", &support.memory, Enforcement::Missing),
        // The process limit still limits the processes of one host uid.
        found("processes", &support.processes, Enforcement::Degraded),
        found("cpu", &support.cpu, Enforcement::Missing),
        // Without a cgroup, CPU time comes from reaped processes, and the kill goes through the
        // init.
        found("cpu time", &support.cpu_time, Enforcement::Degraded),
        found("cgroup kill", &support.kill, Enforcement::Degraded),
    ]
}

/// The steps that make the sandbox's file system the root.
fn enter_sandbox() -> Result<Vec<Step>, SetupFailure> {
    let mountpoint = mountpoint().map_err(|error| SetupFailure::from_io("mount point", &error))?;
    Ok(vec![
        Step::Mount(MountStep::MakeMountsPrivate),
        Step::Mount(MountStep::EnterRoot { fd: ROOT_FD, mountpoint }),
        Step::Mount(MountStep::PivotRoot),
    ])
}

/// The steps that mount `/proc` over the host's, in a private mount namespace.
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

/// Takes the steps in a child that ends where a program would be executed.
fn launch(
    namespaces: i32,
    setup: Vec<Step>,
    mut program: Vec<Step>,
    fs: Option<SandboxFs>,
) -> Result<(), SetupFailure> {
    program.push(Step::Start(StartStep::ReportReady));
    let plan = ChildPlan { setup, program, guard: Vec::new() };
    Launch { fs, ..Launch::of(plan, namespaces) }.spawn_init()?.run_trial()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_pattern_that_leaves_the_sandbox_is_reported() {
        for (pattern, status) in [
            ("core\n", Enforcement::Enforced),
            ("/var/crash/%e.%p\n", Enforcement::Enforced),
            ("\n", Enforcement::Enforced),
            ("|/usr/lib/systemd/systemd-coredump %P %u\n", Enforcement::Degraded),
            ("@/run/coredump.socket\n", Enforcement::Degraded),
        ] {
            assert_eq!(core_dumps(pattern).status, status, "{pattern:?}");
        }
    }

    /// A program that did not wait would sometimes fail first.
    #[test]
    fn a_program_waits_until_its_init_releases_it() {
        for _ in 0..20 {
            let elsewhere =
                Step::Process(ProcessStep::EnterDirectory { path: c"/absent".to_owned() });
            let plan = ChildPlan {
                setup: vec![Step::Start(StartStep::HoldProgram)],
                program: vec![
                    Step::Start(StartStep::AwaitGuard),
                    elsewhere,
                    Step::Start(StartStep::ReportReady),
                ],
                // Fails: the init dies with the lock, and the program dies with it.
                guard: vec![Step::Process(ProcessStep::JoinCgroup { fd: 99 })],
            };
            let failure =
                Launch::of(plan, libc::CLONE_NEWPID).spawn_init().unwrap().run_trial().unwrap_err();
            assert_eq!(failure.to_string(), "sandbox: join cgroup: EBADF");
        }
    }

    /// The proof that is in the plan of every run must fail without rules.
    #[test]
    fn the_landlock_proof_fails_without_rules() {
        let fs = SandboxFs::create(&RootLayout::default(), &Limits::default(), 0).unwrap();
        let proof = Step::Restrict(RestrictStep::ProveRules { path: c"/.refused".to_owned() });
        let failure =
            launch(launch::namespaces(false), enter_sandbox().unwrap(), vec![proof], Some(fs))
                .unwrap_err();
        assert_eq!(failure.to_string(), "sandbox: landlock proof: ENOTRECOVERABLE");
    }
}
