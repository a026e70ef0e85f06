//! What kind of place this is, and what to change where a control is missing.

use std::env;
use std::fs;

/// What kind of place a process runs in, as far as it decides what to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// A machine of its own, real or virtual.
    Host,
    /// Windows' Linux.
    Wsl2,
    /// A container of Docker's engine.
    Docker,
    /// A container of podman's.
    Podman,
    /// A pod.
    Kubernetes,
}

impl Environment {
    /// Looks for the marks each engine leaves in its containers.
    pub fn detect() -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        if env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            Self::Kubernetes
        } else if exists("/run/.containerenv") {
            Self::Podman
        } else if exists("/.dockerenv") {
            Self::Docker
        } else if kernel.to_ascii_lowercase().contains("microsoft") {
            Self::Wsl2
        } else {
            Self::Host
        }
    }

    /// The word of a report.
    pub fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Wsl2 => "wsl2",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// Whether there is something at `path`; what cannot be looked at counts as there.
fn exists(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Flags with which each engine lets the service make its boxes as root; tried row by row by
/// `make test-containers`.
const PODMAN_ROOT: &str = "--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt unmask=ALL";
const DOCKER_ROOT: &str = "--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined";
/// And without any privilege, in user namespaces alone.
const PODMAN_USER: &str =
    "--user 10001:10001 --cap-drop ALL --security-opt seccomp=unconfined --security-opt unmask=ALL";
const DOCKER_USER: &str = "--user 10001:10001 --cap-drop ALL --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined";

/// What lets the service start in such a place where it cannot make boxes.
pub fn to_start(environment: Environment) -> String {
    match environment {
        Environment::Podman => container(PODMAN_ROOT, PODMAN_USER),
        Environment::Docker => container(DOCKER_ROOT, DOCKER_USER),
        Environment::Kubernetes => "securityContext: privileged: true; or capabilities.add: \
            [SYS_ADMIN, NET_ADMIN], seccompProfile.type: Unconfined and procMount: Unmasked; or, \
            with less enforced, the same without capabilities and with runAsUser: 10001 and \
            runAsGroup: 10001"
            .to_owned(),
        Environment::Host | Environment::Wsl2 => "run as root on Linux 5.12 or newer".to_owned(),
    }
}

fn container(root: &str, user: &str) -> String {
    format!("add --privileged; or {root}; or, with less enforced, {user}")
}

/// What would bring `control` to such a place.
pub fn remedy(control: &str, environment: Environment) -> String {
    use Environment::{Docker, Host, Kubernetes, Podman, Wsl2};
    let text = match (control, environment) {
        ("memory" | "processes" | "cpu" | "cpu time" | "cgroup kill", _) => match environment {
            Host | Wsl2 => {
                "run as root, alone in a group of a writable cgroup tree (in a systemd unit: Delegate=yes)"
            }
            Docker | Podman => {
                "--privileged, or --cgroupns=private with /sys/fs/cgroup writable; in both cases the only process at the start (no --init, exec in entrypoints)"
            }
            Kubernetes => "securityContext.privileged: true",
        },
        ("process limits", Docker | Podman) => "--ulimit nofile=4096:4096 --ulimit nproc=4096:4096",
        ("process limits", Kubernetes) => {
            "raise the container runtime's default limits on the node"
        }
        ("process limits", _) => {
            "raise the hard limits of what starts the service (LimitNOFILE=, LimitNPROC=)"
        }
        ("core dumps", Host | Wsl2) => {
            "sysctl -w kernel.core_pattern=core, and no service that sets it back"
        }
        ("core dumps", _) => {
            "on the node (the setting is its own): sysctl -w kernel.core_pattern=core, and no service that sets it back"
        }
        ("landlock", _) => {
            "Linux 5.19 or newer with CONFIG_SECURITY_LANDLOCK, and landlock in the lsm= of the kernel's command line; in a container a seccomp profile that lets its calls through"
        }
        ("user namespace", Host | Wsl2) => {
            "sysctl -w user.max_user_namespaces=15000, and kernel.apparmor_restrict_unprivileged_userns=0 where that exists"
        }
        _ => return to_start(environment),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [Environment; 5] = [
        Environment::Host,
        Environment::Wsl2,
        Environment::Docker,
        Environment::Podman,
        Environment::Kubernetes,
    ];

    #[test]
    fn every_fix_is_in_the_words_of_the_place_it_is_for() {
        for control in ["pid namespace", "user namespace", "private /proc", "uid", "seccomp"] {
            let fix = |environment| remedy(control, environment);
            assert!(fix(Environment::Podman).contains("--security-opt unmask=ALL"), "{control}");
            assert!(fix(Environment::Docker).contains("systempaths=unconfined"), "{control}");
            assert!(fix(Environment::Kubernetes).contains("procMount: Unmasked"), "{control}");
            assert!(!fix(Environment::Host).contains("--"), "{control}");
        }
    }

    #[test]
    fn there_is_a_fix_for_every_control_everywhere() {
        for control in ["memory", "processes", "process limits", "core dumps", "landlock", "cpu"] {
            for place in PLACES {
                assert!(!remedy(control, place).is_empty(), "{control} in {place:?}");
            }
        }
    }
}
