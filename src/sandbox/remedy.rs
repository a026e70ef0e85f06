//! What to change where a control is missing, for the place this is.

use std::env;
use std::fs;

use super::probe::exists;

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

/// What would bring `control` here, as a flag or a line to add.
pub fn remedy(control: &str, environment: Environment) -> String {
    let cgroup = matches!(control, "memory" | "processes" | "cpu" | "cpu time" | "cgroup kill");
    let fix = match (environment, cgroup, control) {
        (Environment::Host, true, _) => {
            "run as root with a writable cgroup tree (systemd: Delegate=yes in the unit)"
        }
        (Environment::Wsl2, true, _) => {
            "add kernelCommandLine=cgroup_no_v1=all under [wsl2] in .wslconfig, and systemd=true under [boot] in /etc/wsl.conf"
        }
        (Environment::Docker | Environment::Podman, true, _) => {
            "start the container with --privileged, or --cgroupns=private with /sys/fs/cgroup writable"
        }
        (Environment::Kubernetes, true, _) => {
            "set securityContext.privileged: true for the container"
        }
        (_, _, "process limits") => {
            "raise the hard limits (ulimit -Hn, -Hu) of whatever starts the service"
        }
        (Environment::Host | Environment::Wsl2, false, "user namespace") => {
            "sysctl -w user.max_user_namespaces=15000, and kernel.apparmor_restrict_unprivileged_userns=0 where that exists"
        }
        (Environment::Host | Environment::Wsl2, ..) => "run as root on Linux 5.12 or newer",
        (Environment::Docker | Environment::Podman, ..) => {
            "start the container with --privileged, or --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
        }
        (Environment::Kubernetes, ..) => {
            "set securityContext.privileged: true, or capabilities.add [SYS_ADMIN], seccompProfile.type Unconfined and procMount Unmasked"
        }
    };
    fix.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_a_fix_of_its_own_for_what_it_withholds() {
        let places = [Environment::Host, Environment::Docker, Environment::Kubernetes];
        for control in ["pid namespace", "memory"] {
            let fixes: std::collections::BTreeSet<String> =
                places.iter().map(|place| remedy(control, *place)).collect();
            assert_eq!(fixes.len(), places.len(), "{control}: {fixes:?}");
        }
    }
}
