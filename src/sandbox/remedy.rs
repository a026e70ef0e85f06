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

/// What would bring `control` to a plain host, to Docker and to Kubernetes.
pub fn remedy(control: &str) -> String {
    let [host, docker, kubernetes] = match control {
        "memory" | "processes" | "cpu" | "cpu time" | "cgroup kill" => [
            "run as root, alone in a group of a writable cgroup tree (in a systemd unit: Delegate=yes)",
            "--privileged, or --cgroupns=private with /sys/fs/cgroup writable; in both cases the only process at the start (no --init, exec in entrypoints)",
            "securityContext.privileged: true",
        ],
        "process limits" => [
            "raise the hard limits of what starts the service (LimitNOFILE=, LimitNPROC=)",
            "--ulimit nofile=1024:1024 --ulimit nproc=4096:4096",
            "raise the container runtime's default limits on the node",
        ],
        "user namespace" => [
            "sysctl -w user.max_user_namespaces=15000, and kernel.apparmor_restrict_unprivileged_userns=0 where that exists",
            "--security-opt seccomp=unconfined --security-opt systempaths=unconfined",
            "seccompProfile.type: Unconfined and procMount: Unmasked",
        ],
        "core dumps" => [
            "sysctl -w kernel.core_pattern=core, and no service that sets it back",
            "--privileged does not help, the setting is the host's: there as on a plain host",
            "on the node, as on a plain host",
        ],
        "landlock" => [
            "Linux 5.19 or newer with CONFIG_SECURITY_LANDLOCK, and landlock in the lsm= of the kernel's command line",
            "--security-opt seccomp=unconfined, on such a host",
            "seccompProfile.type: Unconfined, on such a node",
        ],
        _ => [
            "run as root on Linux 5.12 or newer",
            "--privileged, or --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined",
            "securityContext.privileged: true, or capabilities.add: [SYS_ADMIN] with seccompProfile.type: Unconfined and procMount: Unmasked",
        ],
    };
    format!("plain host: {host}; docker: {docker}; kubernetes: {kubernetes}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fix_speaks_of_all_three_places() {
        for control in [
            "pid namespace",
            "user namespace",
            "memory",
            "process limits",
            "core dumps",
            "landlock",
            "seccomp",
        ] {
            let fix = remedy(control);
            let places = ["plain host: ", "; docker: --", "; kubernetes: "];
            assert!(places.iter().all(|place| fix.contains(place)), "{control}: {fix}");
        }
    }
}
