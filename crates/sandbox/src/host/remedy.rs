//! What to change in a place where a control is missing, and what of the place is the reason.

use crate::host::host_kind::{Environment, Place, Walls};

/// What to do about a control that is not enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// What stands in the way, as far as it is known.
    pub reasons: Vec<&'static str>,
    /// What to change.
    pub fix: String,
}

/// Controls that one change brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Namespaces, mounts, ids: what a box is made of.
    Box,
    /// What has one uid inside stand for another outside.
    UserNamespace,
    /// Memory, processes, CPU.
    Cgroup,
    /// Limits of processes under those we inherited.
    ProcessLimits,
    /// Crashes that stay in the box.
    CoreDumps,
    /// A second set of rules for files.
    Landlock,
    /// Filters of system calls.
    Filter,
}

impl Kind {
    fn of(control: &str) -> Self {
        match control {
            "memory" | "processes" | "cpu" | "cpu time" | "cgroup kill" => Self::Cgroup,
            "process limits" => Self::ProcessLimits,
            "user namespace" => Self::UserNamespace,
            "core dumps" => Self::CoreDumps,
            "landlock" => Self::Landlock,
            "seccomp" | "no_new_privs" => Self::Filter,
            _ => Self::Box,
        }
    }

    /// Whether a container's engine has to be asked for it.
    fn is_up_to_engine(self) -> bool {
        matches!(self, Self::Box | Self::UserNamespace | Self::Landlock | Self::Filter)
    }
}

/// Flags with which each engine lets the service make its boxes as root; tried row by row by
/// `make test-containers`.
const PODMAN_ROOT: &str = "--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt unmask=ALL";
const DOCKER_ROOT: &str = "--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined";
/// And without any privilege, in user namespaces alone.
const PODMAN_USER: &str =
    "--user 10001:10001 --cap-drop ALL --security-opt seccomp=unconfined --security-opt unmask=ALL";
const DOCKER_USER: &str = "--user 10001:10001 --cap-drop ALL --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined";

/// What lets the service start in such a container where it cannot make boxes; none where there is
/// no engine to ask.
pub fn to_start(environment: Environment) -> Option<String> {
    match environment {
        Environment::Podman => Some(container(PODMAN_ROOT, PODMAN_USER)),
        Environment::Docker => Some(container(DOCKER_ROOT, DOCKER_USER)),
        Environment::Kubernetes => Some(
            "securityContext: privileged: true; or capabilities.add: [SYS_ADMIN, NET_ADMIN], \
             seccompProfile.type: Unconfined and procMount: Unmasked; or, with less enforced, the \
             same without capabilities and with runAsUser: 10001 and runAsGroup: 10001"
                .to_owned(),
        ),
        Environment::Host
        | Environment::Systemd
        | Environment::Wsl2
        | Environment::Lxc
        | Environment::Container => None,
    }
}

fn container(root: &str, user: &str) -> String {
    format!("add --privileged; or {root}; or, with less enforced, {user}")
}

/// What would bring `control` to `place`.
pub fn remedy(control: &str, place: &Place) -> Remedy {
    let (kind, Place { environment, walls }) = (Kind::of(control), place);
    if let Some((reason, fix)) = switched_off(kind, walls) {
        return Remedy { reasons: vec![reason], fix: on_machine(*environment, fix) };
    }
    if matches!(kind, Kind::ProcessLimits | Kind::CoreDumps) {
        return Remedy { reasons: Vec::new(), fix: usual(kind, *environment).to_owned() };
    }
    // Anybody may have a filter who wants no new privileges.
    if walls.not_root && kind != Kind::Filter {
        let fix = as_root(*environment).to_owned();
        return Remedy { reasons: vec!["not started as root"], fix };
    }
    let mut reasons = Vec::new();
    if walls.in_user_namespace {
        reasons.push("root here is not the machine's, but that of a user namespace");
    }
    if walls.seccomp && kind.is_up_to_engine() {
        reasons.push("under a seccomp filter of what started this");
    }
    let fix = if walls.in_user_namespace {
        as_machines_root(*environment).to_owned()
    } else {
        let flags = if kind.is_up_to_engine() { engine_flags(*environment, walls) } else { None };
        flags.unwrap_or_else(|| usual(kind, *environment).to_owned())
    };
    Remedy { reasons, fix }
}

/// A setting of the kernel's that alone is the reason.
fn switched_off(kind: Kind, walls: &Walls) -> Option<(&'static str, &'static str)> {
    if kind != Kind::UserNamespace {
        return None;
    }
    if walls.no_user_namespaces {
        Some(("user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000"))
    } else if walls.no_unprivileged_clone {
        Some((
            "kernel.unprivileged_userns_clone is 0",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ))
    } else if walls.apparmor_user_namespaces {
        Some((
            "kernel.apparmor_restrict_unprivileged_userns is 1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns,` for cofferdam",
        ))
    } else {
        None
    }
}

/// A setting of the kernel's is not made in a container.
fn on_machine(environment: Environment, fix: &str) -> String {
    match environment {
        Environment::Host | Environment::Systemd | Environment::Wsl2 => fix.to_owned(),
        Environment::Kubernetes => format!("on the node: {fix}"),
        Environment::Lxc | Environment::Docker | Environment::Podman | Environment::Container => {
            format!("on the host, outside of the container: {fix}")
        }
    }
}

fn as_root(environment: Environment) -> &'static str {
    match environment {
        Environment::Host => "start it as root: sudo cofferdam ...",
        Environment::Systemd => "User=root in the unit, and no DynamicUser=",
        Environment::Wsl2 => "start it as root: wsl -u root",
        Environment::Lxc | Environment::Container => "start it as root in the container",
        Environment::Docker => "docker run --user 0 --privileged",
        Environment::Podman => "sudo podman run --user 0 --privileged",
        Environment::Kubernetes => "securityContext: runAsUser: 0 and privileged: true",
    }
}

fn as_machines_root(environment: Environment) -> &'static str {
    match environment {
        Environment::Host => "start it outside of the user namespace (unshare, a rootless engine)",
        Environment::Systemd => "no PrivateUsers= in the unit, which has to be the system's",
        Environment::Wsl2 => "start it as root: wsl -u root",
        Environment::Lxc => {
            "a privileged container: security.privileged=true (Proxmox: unprivileged: 0)"
        }
        Environment::Docker => {
            "docker run --userns=host --privileged, of an engine that is not rootless"
        }
        Environment::Podman => "sudo podman run --privileged: rootless podman cannot",
        Environment::Kubernetes => "hostUsers: true in the pod, and privileged: true",
        Environment::Container => "a container whose root is the host's, as privileged ones have",
    }
}

/// Exactly what this container lacks, in the words of its engine.
fn engine_flags(environment: Environment, walls: &Walls) -> Option<String> {
    let (command, divider, words) = match environment {
        Environment::Docker => (
            "docker run",
            " ",
            [
                "--cap-add SYS_ADMIN --cap-add NET_ADMIN",
                "--security-opt seccomp=unconfined",
                "--security-opt apparmor=unconfined",
                "--security-opt systempaths=unconfined",
            ],
        ),
        Environment::Podman => (
            "podman run",
            " ",
            [
                "--cap-add SYS_ADMIN --cap-add NET_ADMIN",
                "--security-opt seccomp=unconfined",
                "--security-opt apparmor=unconfined",
                "--security-opt unmask=ALL",
            ],
        ),
        Environment::Kubernetes => (
            "securityContext:",
            ", ",
            [
                "capabilities.add: [SYS_ADMIN, NET_ADMIN]",
                "seccompProfile.type: Unconfined",
                "appArmorProfile.type: Unconfined",
                "procMount: Unmasked",
            ],
        ),
        _ => return None,
    };
    let up = [walls.no_sys_admin, walls.seccomp, walls.apparmor, walls.masked_proc];
    let lacking: Vec<&str> =
        words.into_iter().zip(up).filter_map(|(word, up)| up.then_some(word)).collect();
    let whole =
        if environment == Environment::Kubernetes { "privileged: true" } else { "--privileged" };
    (!lacking.is_empty()).then(|| format!("{command} {}; or {whole}", lacking.join(divider)))
}

/// What helps there where nothing more is known.
fn usual(kind: Kind, environment: Environment) -> &'static str {
    match kind {
        Kind::Box => usual_for_boxes(environment),
        Kind::UserNamespace => usual_for_user_namespaces(environment),
        Kind::Cgroup => usual_for_cgroups(environment),
        Kind::ProcessLimits => usual_for_limits(environment),
        Kind::CoreDumps => usual_for_core_dumps(environment),
        Kind::Landlock => usual_for_landlock(environment),
        Kind::Filter => usual_for_filters(environment),
    }
}

fn usual_for_boxes(environment: Environment) -> &'static str {
    match environment {
        Environment::Host => "run as root on Linux 5.12 or newer",
        Environment::Systemd => {
            "in the unit CAP_SYS_ADMIN in CapabilityBoundingSet=, and no RestrictNamespaces=, SystemCallFilter= or ProcSubset=; Linux 5.12 or newer"
        }
        Environment::Wsl2 => "wsl --update, for Linux 5.15 or newer, and wsl -u root",
        Environment::Lxc => {
            "security.nesting=true and security.privileged=true (Proxmox: features: nesting=1)"
        }
        Environment::Docker => "docker run --privileged, on Linux 5.12 or newer",
        Environment::Podman => "sudo podman run --privileged, on Linux 5.12 or newer",
        Environment::Kubernetes => {
            "securityContext: privileged: true, on nodes with Linux 5.12 or newer"
        }
        Environment::Container => {
            "CAP_SYS_ADMIN, no seccomp filter, no AppArmor profile and a whole /proc: what engines call privileged"
        }
    }
}

fn usual_for_user_namespaces(environment: Environment) -> &'static str {
    match environment {
        Environment::Host => "a kernel with CONFIG_USER_NS, and run as root",
        Environment::Systemd => "no RestrictNamespaces= and no SystemCallFilter= in the unit",
        Environment::Wsl2 => "wsl --update: its usual kernel has user namespaces",
        Environment::Lxc => "security.nesting=true (Proxmox: features: nesting=1)",
        Environment::Docker => {
            "docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
        }
        Environment::Podman => {
            "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL"
        }
        Environment::Kubernetes => {
            "securityContext: seccompProfile.type: Unconfined, procMount: Unmasked"
        }
        Environment::Container => "no seccomp filter and a whole /proc in the container",
    }
}

fn usual_for_cgroups(environment: Environment) -> &'static str {
    match environment {
        Environment::Host => {
            "run as root, alone in a group of a writable cgroup tree: systemd-run --scope -p Delegate=yes cofferdam ..."
        }
        Environment::Systemd => {
            "Delegate=yes in the unit's [Service], and no ProtectControlGroups=; then systemctl daemon-reload and restart"
        }
        Environment::Wsl2 => {
            "kernelCommandLine=cgroup_no_v1=all below [wsl2] in .wslconfig, then wsl --shutdown; run as root"
        }
        Environment::Lxc => "security.nesting=true, which makes /sys/fs/cgroup writable",
        Environment::Docker => {
            "docker run --privileged --cgroupns=private, and cofferdam as the container's only process (no --init, exec in entrypoints)"
        }
        Environment::Podman => {
            "sudo podman run --privileged --cgroupns=private, and cofferdam as the container's only process (no --init, exec in entrypoints)"
        }
        Environment::Kubernetes => {
            "securityContext: privileged: true, and cofferdam as the container's only process (no shareProcessNamespace, exec in entrypoints)"
        }
        Environment::Container => {
            "a writable /sys/fs/cgroup of the container's own, and cofferdam as its only process"
        }
    }
}

fn usual_for_limits(environment: Environment) -> &'static str {
    match environment {
        Environment::Host | Environment::Wsl2 => {
            "raise the hard limits of what starts it: ulimit -Hn 1024; ulimit -Hu 4096"
        }
        Environment::Systemd => "LimitNOFILE=1024 and LimitNPROC=4096 or more in the unit",
        Environment::Lxc => {
            "limits.kernel.nofile=1024 and limits.kernel.nproc=4096 or more (lxc.prlimit.*)"
        }
        Environment::Docker => "docker run --ulimit nofile=1024:1024 --ulimit nproc=4096:4096",
        Environment::Podman => "podman run --ulimit nofile=1024:1024 --ulimit nproc=4096:4096",
        Environment::Kubernetes => {
            "on the node LimitNOFILE= and LimitNPROC= in the unit of the container runtime"
        }
        Environment::Container => "raise the hard limits of what starts the container",
    }
}

fn usual_for_core_dumps(environment: Environment) -> &'static str {
    match environment {
        Environment::Host | Environment::Systemd | Environment::Wsl2 => {
            "sysctl -w kernel.core_pattern=core, and no service that sets it back"
        }
        Environment::Kubernetes => {
            "on the node: sysctl -w kernel.core_pattern=core, and no service that sets it back"
        }
        Environment::Lxc | Environment::Docker | Environment::Podman | Environment::Container => {
            "on the host, outside of the container: sysctl -w kernel.core_pattern=core, and no service that sets it back"
        }
    }
}

fn usual_for_landlock(environment: Environment) -> &'static str {
    match environment {
        Environment::Host | Environment::Systemd => {
            "Linux 5.19 or newer with CONFIG_SECURITY_LANDLOCK, and landlock in the lsm= of the kernel's command line"
        }
        Environment::Wsl2 => {
            "a kernel with CONFIG_SECURITY_LANDLOCK (kernel= in .wslconfig), and kernelCommandLine=lsm=landlock"
        }
        Environment::Kubernetes => {
            "a node with Linux 5.19 or newer, CONFIG_SECURITY_LANDLOCK and landlock in lsm="
        }
        Environment::Lxc | Environment::Docker | Environment::Podman | Environment::Container => {
            "a host with Linux 5.19 or newer, CONFIG_SECURITY_LANDLOCK and landlock in lsm="
        }
    }
}

fn usual_for_filters(environment: Environment) -> &'static str {
    match environment {
        Environment::Host | Environment::Systemd => "a kernel with CONFIG_SECCOMP_FILTER",
        Environment::Wsl2 => "a kernel with CONFIG_SECCOMP_FILTER (wsl --update)",
        Environment::Kubernetes => "a node whose kernel has CONFIG_SECCOMP_FILTER",
        Environment::Lxc | Environment::Docker | Environment::Podman | Environment::Container => {
            "a host whose kernel has CONFIG_SECCOMP_FILTER"
        }
    }
}

#[cfg(test)]
mod tests;
