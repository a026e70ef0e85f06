//! What to change on a host where a control is missing, and why it is missing.

mod defaults;

use self::defaults::{ControlKind, default_fix};
use crate::host::host_kind::{HostInfo, HostKind, Obstacles};

/// What to do about a control that is not enforced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// The known reasons.
    pub reasons: Vec<&'static str>,
    /// What to change.
    pub fix: String,
}

/// Flags with which each engine lets the service create sandboxes as root. `make test-containers`
/// tries them row by row.
const PODMAN_ROOT: &str = "--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt unmask=ALL";
const DOCKER_ROOT: &str = "--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined";
/// Flags without any privilege, for user namespaces alone.
const PODMAN_USER: &str =
    "--user 10001:10001 --cap-drop ALL --security-opt seccomp=unconfined --security-opt unmask=ALL";
const DOCKER_USER: &str = "--user 10001:10001 --cap-drop ALL --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined";

/// What lets the service start in a container where it cannot create sandboxes; `None` if there is
/// no known engine.
pub fn to_start(host: HostKind) -> Option<String> {
    match host {
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

/// What to change so that `control` is enforced.
pub fn remedy(control: &str, info: &HostInfo) -> Remedy {
    let HostInfo { kind: host, obstacles } = info;
    let control = ControlKind::of(control);
    if let Some((reason, fix)) = switched_off(control, obstacles) {
        return Remedy { reasons: vec![reason], fix: on_machine(*host, fix) };
    }
    if matches!(control, ControlKind::ProcessLimits | ControlKind::CoreDumps) {
        return Remedy { reasons: Vec::new(), fix: default_fix(control, *host).to_owned() };
    }
    // A filter needs no root, only no_new_privs.
    if obstacles.not_root && control != ControlKind::Filter {
        let fix = as_root(*host).to_owned();
        return Remedy { reasons: vec!["not started as root"], fix };
    }
    let mut reasons = Vec::new();
    if obstacles.in_user_namespace {
        reasons.push("root here is not the machine's, but that of a user namespace");
    }
    if obstacles.seccomp && control.is_up_to_engine() {
        reasons.push("under a seccomp filter of what started this");
    }
    let fix = if obstacles.in_user_namespace {
        as_machines_root(*host).to_owned()
    } else {
        let flags = if control.is_up_to_engine() { engine_flags(*host, obstacles) } else { None };
        flags.unwrap_or_else(|| default_fix(control, *host).to_owned())
    };
    Remedy { reasons, fix }
}

/// A kernel setting that alone is the reason.
fn switched_off(
    control: ControlKind,
    obstacles: &Obstacles,
) -> Option<(&'static str, &'static str)> {
    if control != ControlKind::UserNamespace {
        return None;
    }
    if obstacles.no_user_namespaces {
        Some(("user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000"))
    } else if obstacles.no_unprivileged_clone {
        Some((
            "kernel.unprivileged_userns_clone is 0",
            "sysctl -w kernel.unprivileged_userns_clone=1",
        ))
    } else if obstacles.apparmor_user_namespaces {
        Some((
            "kernel.apparmor_restrict_unprivileged_userns is 1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns,` for cofferdam",
        ))
    } else {
        None
    }
}

/// A kernel setting cannot be changed in a container.
fn on_machine(host: HostKind, fix: &str) -> String {
    match host {
        HostKind::Host | HostKind::Systemd | HostKind::Wsl2 => fix.to_owned(),
        HostKind::Kubernetes => format!("on the node: {fix}"),
        HostKind::Lxc | HostKind::Docker | HostKind::Podman | HostKind::Container => {
            format!("on the host, outside of the container: {fix}")
        }
    }
}

fn as_root(host: HostKind) -> &'static str {
    match host {
        HostKind::Host => "start it as root: sudo cofferdam ...",
        HostKind::Systemd => "User=root in the unit, and no DynamicUser=",
        HostKind::Wsl2 => "start it as root: wsl -u root",
        HostKind::Lxc | HostKind::Container => "start it as root in the container",
        HostKind::Docker => "docker run --user 0 --privileged",
        HostKind::Podman => "sudo podman run --user 0 --privileged",
        HostKind::Kubernetes => "securityContext: runAsUser: 0 and privileged: true",
    }
}

fn as_machines_root(host: HostKind) -> &'static str {
    match host {
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

/// The flags that this container lacks, in the syntax of its engine.
fn engine_flags(host: HostKind, obstacles: &Obstacles) -> Option<String> {
    let (command, divider, words) = match host {
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
    let up = [obstacles.no_sys_admin, obstacles.seccomp, obstacles.apparmor, obstacles.masked_proc];
    let lacking: Vec<&str> =
        words.into_iter().zip(up).filter_map(|(word, up)| up.then_some(word)).collect();
    let whole = if host == HostKind::Kubernetes { "privileged: true" } else { "--privileged" };
    (!lacking.is_empty()).then(|| format!("{command} {}; or {whole}", lacking.join(divider)))
}

#[cfg(test)]
mod tests;
