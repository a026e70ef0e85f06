//! What to change in a place where a control is missing, and what of the place is the reason.

use crate::host::host_kind::{HostInfo, HostKind, Obstacles};

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
enum ControlKind {
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

impl ControlKind {
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
pub fn to_start(environment: HostKind) -> Option<String> {
    match environment {
        HostKind::Podman => Some(container(PODMAN_ROOT, PODMAN_USER)),
        HostKind::Docker => Some(container(DOCKER_ROOT, DOCKER_USER)),
        HostKind::Kubernetes => Some(
            "securityContext: privileged: true; or capabilities.add: [SYS_ADMIN, NET_ADMIN], \
             seccompProfile.type: Unconfined and procMount: Unmasked; or, with less enforced, the \
             same without capabilities and with runAsUser: 10001 and runAsGroup: 10001"
                .to_owned(),
        ),
        HostKind::Host
        | HostKind::Systemd
        | HostKind::Wsl2
        | HostKind::Lxc
        | HostKind::Container => None,
    }
}

fn container(root: &str, user: &str) -> String {
    format!("add --privileged; or {root}; or, with less enforced, {user}")
}

/// What would bring `control` to `place`.
pub fn remedy(control: &str, place: &HostInfo) -> Remedy {
    let (kind, HostInfo { environment, walls }) = (ControlKind::of(control), place);
    if let Some((reason, fix)) = switched_off(kind, walls) {
        return Remedy { reasons: vec![reason], fix: on_machine(*environment, fix) };
    }
    if matches!(kind, ControlKind::ProcessLimits | ControlKind::CoreDumps) {
        return Remedy { reasons: Vec::new(), fix: usual(kind, *environment).to_owned() };
    }
    // Anybody may have a filter who wants no new privileges.
    if walls.not_root && kind != ControlKind::Filter {
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
fn switched_off(kind: ControlKind, walls: &Obstacles) -> Option<(&'static str, &'static str)> {
    if kind != ControlKind::UserNamespace {
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
fn on_machine(environment: HostKind, fix: &str) -> String {
    match environment {
        HostKind::Host | HostKind::Systemd | HostKind::Wsl2 => fix.to_owned(),
        HostKind::Kubernetes => format!("on the node: {fix}"),
        HostKind::Lxc | HostKind::Docker | HostKind::Podman | HostKind::Container => {
            format!("on the host, outside of the container: {fix}")
        }
    }
}

fn as_root(environment: HostKind) -> &'static str {
    match environment {
        HostKind::Host => "start it as root: sudo cofferdam ...",
        HostKind::Systemd => "User=root in the unit, and no DynamicUser=",
        HostKind::Wsl2 => "start it as root: wsl -u root",
        HostKind::Lxc | HostKind::Container => "start it as root in the container",
        HostKind::Docker => "docker run --user 0 --privileged",
        HostKind::Podman => "sudo podman run --user 0 --privileged",
        HostKind::Kubernetes => "securityContext: runAsUser: 0 and privileged: true",
    }
}

fn as_machines_root(environment: HostKind) -> &'static str {
    match environment {
        HostKind::Host => "start it outside of the user namespace (unshare, a rootless engine)",
        HostKind::Systemd => "no PrivateUsers= in the unit, which has to be the system's",
        HostKind::Wsl2 => "start it as root: wsl -u root",
        HostKind::Lxc => {
            "a privileged container: security.privileged=true (Proxmox: unprivileged: 0)"
        }
        HostKind::Docker => {
            "docker run --userns=host --privileged, of an engine that is not rootless"
        }
        HostKind::Podman => "sudo podman run --privileged: rootless podman cannot",
        HostKind::Kubernetes => "hostUsers: true in the pod, and privileged: true",
        HostKind::Container => "a container whose root is the host's, as privileged ones have",
    }
}

/// Exactly what this container lacks, in the words of its engine.
fn engine_flags(environment: HostKind, walls: &Obstacles) -> Option<String> {
    let (command, divider, words) = match environment {
        HostKind::Docker => (
            "docker run",
            " ",
            [
                "--cap-add SYS_ADMIN --cap-add NET_ADMIN",
                "--security-opt seccomp=unconfined",
                "--security-opt apparmor=unconfined",
                "--security-opt systempaths=unconfined",
            ],
        ),
        HostKind::Podman => (
            "podman run",
            " ",
            [
                "--cap-add SYS_ADMIN --cap-add NET_ADMIN",
                "--security-opt seccomp=unconfined",
                "--security-opt apparmor=unconfined",
                "--security-opt unmask=ALL",
            ],
        ),
        HostKind::Kubernetes => (
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
        if environment == HostKind::Kubernetes { "privileged: true" } else { "--privileged" };
    (!lacking.is_empty()).then(|| format!("{command} {}; or {whole}", lacking.join(divider)))
}

/// What helps there where nothing more is known.
fn usual(kind: ControlKind, environment: HostKind) -> &'static str {
    match kind {
        ControlKind::Box => usual_for_boxes(environment),
        ControlKind::UserNamespace => usual_for_user_namespaces(environment),
        ControlKind::Cgroup => usual_for_cgroups(environment),
        ControlKind::ProcessLimits => usual_for_limits(environment),
        ControlKind::CoreDumps => usual_for_core_dumps(environment),
        ControlKind::Landlock => usual_for_landlock(environment),
        ControlKind::Filter => usual_for_filters(environment),
    }
}

fn usual_for_boxes(environment: HostKind) -> &'static str {
    match environment {
        HostKind::Host => "run as root on Linux 5.12 or newer",
        HostKind::Systemd => {
            "in the unit CAP_SYS_ADMIN in CapabilityBoundingSet=, and no RestrictNamespaces=, SystemCallFilter= or ProcSubset=; Linux 5.12 or newer"
        }
        HostKind::Wsl2 => "wsl --update, for Linux 5.15 or newer, and wsl -u root",
        HostKind::Lxc => {
            "security.nesting=true and security.privileged=true (Proxmox: features: nesting=1)"
        }
        HostKind::Docker => "docker run --privileged, on Linux 5.12 or newer",
        HostKind::Podman => "sudo podman run --privileged, on Linux 5.12 or newer",
        HostKind::Kubernetes => {
            "securityContext: privileged: true, on nodes with Linux 5.12 or newer"
        }
        HostKind::Container => {
            "CAP_SYS_ADMIN, no seccomp filter, no AppArmor profile and a whole /proc: what engines call privileged"
        }
    }
}

fn usual_for_user_namespaces(environment: HostKind) -> &'static str {
    match environment {
        HostKind::Host => "a kernel with CONFIG_USER_NS, and run as root",
        HostKind::Systemd => "no RestrictNamespaces= and no SystemCallFilter= in the unit",
        HostKind::Wsl2 => "wsl --update: its usual kernel has user namespaces",
        HostKind::Lxc => "security.nesting=true (Proxmox: features: nesting=1)",
        HostKind::Docker => {
            "docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
        }
        HostKind::Podman => {
            "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL"
        }
        HostKind::Kubernetes => {
            "securityContext: seccompProfile.type: Unconfined, procMount: Unmasked"
        }
        HostKind::Container => "no seccomp filter and a whole /proc in the container",
    }
}

fn usual_for_cgroups(environment: HostKind) -> &'static str {
    match environment {
        HostKind::Host => {
            "run as root, alone in a group of a writable cgroup tree: systemd-run --scope -p Delegate=yes cofferdam ..."
        }
        HostKind::Systemd => {
            "Delegate=yes in the unit's [Service], and no ProtectControlGroups=; then systemctl daemon-reload and restart"
        }
        HostKind::Wsl2 => {
            "kernelCommandLine=cgroup_no_v1=all below [wsl2] in .wslconfig, then wsl --shutdown; run as root"
        }
        HostKind::Lxc => "security.nesting=true, which makes /sys/fs/cgroup writable",
        HostKind::Docker => {
            "docker run --privileged --cgroupns=private, and cofferdam as the container's only process (no --init, exec in entrypoints)"
        }
        HostKind::Podman => {
            "sudo podman run --privileged --cgroupns=private, and cofferdam as the container's only process (no --init, exec in entrypoints)"
        }
        HostKind::Kubernetes => {
            "securityContext: privileged: true, and cofferdam as the container's only process (no shareProcessNamespace, exec in entrypoints)"
        }
        HostKind::Container => {
            "a writable /sys/fs/cgroup of the container's own, and cofferdam as its only process"
        }
    }
}

fn usual_for_limits(environment: HostKind) -> &'static str {
    match environment {
        HostKind::Host | HostKind::Wsl2 => {
            "raise the hard limits of what starts it: ulimit -Hn 1024; ulimit -Hu 4096"
        }
        HostKind::Systemd => "LimitNOFILE=1024 and LimitNPROC=4096 or more in the unit",
        HostKind::Lxc => {
            "limits.kernel.nofile=1024 and limits.kernel.nproc=4096 or more (lxc.prlimit.*)"
        }
        HostKind::Docker => "docker run --ulimit nofile=1024:1024 --ulimit nproc=4096:4096",
        HostKind::Podman => "podman run --ulimit nofile=1024:1024 --ulimit nproc=4096:4096",
        HostKind::Kubernetes => {
            "on the node LimitNOFILE= and LimitNPROC= in the unit of the container runtime"
        }
        HostKind::Container => "raise the hard limits of what starts the container",
    }
}

fn usual_for_core_dumps(environment: HostKind) -> &'static str {
    match environment {
        HostKind::Host | HostKind::Systemd | HostKind::Wsl2 => {
            "sysctl -w kernel.core_pattern=core, and no service that sets it back"
        }
        HostKind::Kubernetes => {
            "on the node: sysctl -w kernel.core_pattern=core, and no service that sets it back"
        }
        HostKind::Lxc | HostKind::Docker | HostKind::Podman | HostKind::Container => {
            "on the host, outside of the container: sysctl -w kernel.core_pattern=core, and no service that sets it back"
        }
    }
}

fn usual_for_landlock(environment: HostKind) -> &'static str {
    match environment {
        HostKind::Host | HostKind::Systemd => {
            "Linux 5.19 or newer with CONFIG_SECURITY_LANDLOCK, and landlock in the lsm= of the kernel's command line"
        }
        HostKind::Wsl2 => {
            "a kernel with CONFIG_SECURITY_LANDLOCK (kernel= in .wslconfig), and kernelCommandLine=lsm=landlock"
        }
        HostKind::Kubernetes => {
            "a node with Linux 5.19 or newer, CONFIG_SECURITY_LANDLOCK and landlock in lsm="
        }
        HostKind::Lxc | HostKind::Docker | HostKind::Podman | HostKind::Container => {
            "a host with Linux 5.19 or newer, CONFIG_SECURITY_LANDLOCK and landlock in lsm="
        }
    }
}

fn usual_for_filters(environment: HostKind) -> &'static str {
    match environment {
        HostKind::Host | HostKind::Systemd => "a kernel with CONFIG_SECCOMP_FILTER",
        HostKind::Wsl2 => "a kernel with CONFIG_SECCOMP_FILTER (wsl --update)",
        HostKind::Kubernetes => "a node whose kernel has CONFIG_SECCOMP_FILTER",
        HostKind::Lxc | HostKind::Docker | HostKind::Podman | HostKind::Container => {
            "a host whose kernel has CONFIG_SECCOMP_FILTER"
        }
    }
}

#[cfg(test)]
mod tests;
