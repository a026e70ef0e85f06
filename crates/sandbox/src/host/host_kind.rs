//! The kind of this host, and what on it can prevent sandboxes.

use std::env;
use std::fs;
use std::path::Path;

use caps::{CapSet, Capability, has_cap};
use nix::unistd::geteuid;

use crate::launch::unprivileged;

/// The kind of host, as far as it decides what to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKind {
    /// A physical or virtual machine.
    Host,
    /// A systemd unit on such a machine.
    Systemd,
    /// Windows Subsystem for Linux.
    Wsl2,
    /// A container of LXC, LXD, Incus or Proxmox.
    Lxc,
    /// A container of Docker.
    Docker,
    /// A container of podman.
    Podman,
    /// A pod of Kubernetes.
    Kubernetes,
    /// A container of another engine.
    Container,
}

/// The kind of this host and the obstacles on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostInfo {
    /// What kind of host it is.
    pub kind: HostKind,
    /// What may prevent sandboxes.
    pub obstacles: Obstacles,
}

/// What can keep this process from creating sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Obstacles {
    /// The user is not root.
    pub not_root: bool,
    /// This process has no CAP_SYS_ADMIN.
    pub no_sys_admin: bool,
    /// This process is in a user namespace, so its root is not the machine's root.
    pub in_user_namespace: bool,
    /// The parent process installed a seccomp filter.
    pub seccomp: bool,
    /// An AppArmor profile is enforced.
    pub apparmor: bool,
    /// Something is mounted over parts of `/proc`.
    pub masked_proc: bool,
    /// `user.max_user_namespaces` is 0.
    pub no_user_namespaces: bool,
    /// `kernel.unprivileged_userns_clone` is 0.
    pub no_unprivileged_clone: bool,
    /// `kernel.apparmor_restrict_unprivileged_userns` is 1.
    pub apparmor_user_namespaces: bool,
}

impl HostInfo {
    /// Reads both.
    pub fn read() -> Self {
        Self { kind: HostKind::detect(), obstacles: Obstacles::read() }
    }
}

/// Evidence that engines and kernels leave.
#[derive(Debug, Clone, Default)]
struct HostMarks {
    /// `KUBERNETES_SERVICE_HOST` is set, or a pod's secrets are mounted.
    kubernetes: bool,
    /// `/run/.containerenv`.
    containerenv: bool,
    /// `/.dockerenv`.
    dockerenv: bool,
    /// The variable `container` of this process or of the first one.
    container: String,
    /// The release of the kernel.
    kernel: String,
    /// `/proc/self/cgroup`.
    cgroup: String,
    /// `INVOCATION_ID` is set, which the processes of a unit inherit.
    invocation: bool,
}

impl HostMarks {
    fn read() -> Self {
        let first = fs::read("/proc/1/environ").unwrap_or_default();
        let of_first = first.split(|byte| *byte == 0).find_map(|v| v.strip_prefix(b"container="));
        let container = env::var("container")
            .unwrap_or_else(|_| String::from_utf8_lossy(of_first.unwrap_or_default()).into());
        Self {
            kubernetes: env::var_os("KUBERNETES_SERVICE_HOST").is_some()
                || exists("/var/run/secrets/kubernetes.io"),
            containerenv: exists("/run/.containerenv"),
            dockerenv: exists("/.dockerenv"),
            container,
            kernel: text_of("/proc/sys/kernel/osrelease"),
            cgroup: text_of("/proc/self/cgroup"),
            invocation: env::var_os("INVOCATION_ID").is_some(),
        }
    }
}

impl HostKind {
    /// Detects the kind of this host.
    pub fn detect() -> Self {
        Self::of(&HostMarks::read())
    }

    fn of(marks: &HostMarks) -> Self {
        let container = marks.container.as_str();
        if marks.kubernetes {
            Self::Kubernetes
        } else if marks.containerenv || container == "podman" {
            Self::Podman
        } else if marks.dockerenv || container == "docker" {
            Self::Docker
        } else if container == "lxc" {
            Self::Lxc
        } else if marks.kernel.to_ascii_lowercase().contains("microsoft") {
            // Before `container`: the first process of WSL sets that variable too.
            Self::Wsl2
        } else if !container.is_empty() {
            Self::Container
        } else if marks.invocation && is_in_unit(&marks.cgroup) {
            Self::Systemd
        } else {
            Self::Host
        }
    }

    /// The word in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Systemd => "systemd",
            Self::Wsl2 => "wsl2",
            Self::Lxc => "lxc",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Kubernetes => "kubernetes",
            Self::Container => "container",
        }
    }
}

/// Whether the last unit in the path of one of our groups is a service. A login shell is in a
/// scope, below the service of the user's manager.
fn is_in_unit(cgroup: &str) -> bool {
    cgroup.lines().any(|line| {
        let path = line.splitn(3, ':').nth(2).unwrap_or_default();
        let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
        path.rsplit('/').find(is_unit).is_some_and(|unit| unit.ends_with(".service"))
    })
}

impl Obstacles {
    fn read() -> Self {
        let is_zero = |path: &str| text_of(path).trim() == "0";
        let status = text_of("/proc/self/status");
        let profile = text_of("/proc/self/attr/current");
        // In a user namespace entered by this process it is root; the user who created the
        // namespace counts.
        let settled = unprivileged::is_active().unwrap_or(false);
        let has_sys_admin = has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN);
        Self {
            not_root: settled || !geteuid().is_root(),
            no_sys_admin: settled || !has_sys_admin.unwrap_or(false),
            in_user_namespace: !settled && is_partial(&text_of("/proc/self/uid_map")),
            seccomp: status.lines().any(is_filtered),
            apparmor: is_profile(profile.trim_end_matches(['\0', '\n'])),
            masked_proc: is_masked(&text_of("/proc/self/mountinfo")),
            no_user_namespaces: is_zero("/proc/sys/user/max_user_namespaces"),
            no_unprivileged_clone: is_zero("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_user_namespaces: text_of(
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            )
            .trim()
                == "1",
        }
    }
}

/// Whether a uid map is partial. Only the map of the initial user namespace is not.
fn is_partial(uid_map: &str) -> bool {
    let words: Vec<&str> = uid_map.split_whitespace().collect();
    !words.is_empty() && words != ["0", "0", "4294967295"]
}

fn is_filtered(status_line: &str) -> bool {
    status_line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2")
}

/// Whether `/proc/self/attr/current` names an enforced AppArmor profile. SELinux writes contexts of
/// four parts there.
fn is_profile(current: &str) -> bool {
    let is_context = current.split(':').count() >= 4;
    !current.is_empty() && !is_context && current.ends_with("(enforce)")
}

fn is_masked(mountinfo: &str) -> bool {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    // The kernel mounts binfmt_misc there itself.
    points.filter(|point| !point.ends_with("/binfmt_misc")).any(|point| point.starts_with("/proc/"))
}

/// The text of a small file; empty if it cannot be read.
fn text_of(path: &str) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Whether `path` exists. False if it cannot be checked.
fn exists(path: &str) -> bool {
    fs::symlink_metadata(Path::new(path)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_host_is_detected() {
        let marks = |change: fn(&mut HostMarks)| {
            let mut marks = HostMarks { kernel: "6.12.0-amd64".to_owned(), ..HostMarks::default() };
            change(&mut marks);
            marks
        };
        for (marks, environment) in [
            (marks(|_| {}), HostKind::Host),
            (marks(|m| m.kubernetes = true), HostKind::Kubernetes),
            (
                marks(|m| {
                    m.kubernetes = true;
                    m.dockerenv = true;
                }),
                HostKind::Kubernetes,
            ),
            (marks(|m| m.containerenv = true), HostKind::Podman),
            (marks(|m| m.container = "podman".into()), HostKind::Podman),
            (marks(|m| m.dockerenv = true), HostKind::Docker),
            (marks(|m| m.container = "lxc".into()), HostKind::Lxc),
            (marks(|m| m.container = "systemd-nspawn".into()), HostKind::Container),
            (marks(|m| m.kernel = "5.15.90.1-Microsoft-standard-WSL2".into()), HostKind::Wsl2),
            (
                marks(|m| {
                    m.kernel = "6.6.36.6-microsoft-standard-WSL2".into();
                    m.container = "wsl".into();
                }),
                HostKind::Wsl2,
            ),
            (
                marks(|m| {
                    m.invocation = true;
                    m.cgroup = "0::/system.slice/cofferdam.service\n".into();
                }),
                HostKind::Systemd,
            ),
            // A login shell inherits the variable from the user's manager.
            (
                marks(|m| {
                    m.invocation = true;
                    m.cgroup = "0::/user.slice/user-0.slice/session-3.scope\n".into();
                }),
                HostKind::Host,
            ),
            (marks(|m| m.cgroup = "0::/system.slice/cron.service".into()), HostKind::Host),
        ] {
            assert_eq!(HostKind::of(&marks), environment, "{marks:?}");
        }
    }

    #[test]
    fn the_last_unit_in_a_cgroup_path_decides() {
        for (cgroup, is_unit) in [
            ("0::/system.slice/a.service", true),
            ("0::/system.slice/a.service/supervisor", true),
            ("1:name=systemd:/system.slice/a.service\n0::/", true),
            ("0::/user.slice/user-1.slice/user@1.service/app.slice/run-7.scope", false),
            ("0::/", false),
            ("", false),
        ] {
            assert_eq!(is_in_unit(cgroup), is_unit, "{cgroup}");
        }
    }

    #[test]
    fn obstacles_are_read_from_the_texts_of_the_kernel() {
        assert!(is_filtered("Seccomp:\t2"));
        assert!(!is_filtered("Seccomp:\t0") && !is_filtered("Seccomp_filters:\t2"));
        assert!(!is_partial("         0          0 4294967295\n") && !is_partial(""));
        assert!(is_partial("0 100000 65536\n") && is_partial("0 1000 1\n1 100000 65536\n"));
        assert!(is_profile("docker-default (enforce)"));
        for current in ["", "unconfined", "x (complain)", "system_u:system_r:container_t:s0:c1"] {
            assert!(!is_profile(current), "{current}");
        }
        let masked = "700 699 0:53 / /proc/kcore rw,nosuid - tmpfs tmpfs rw\n";
        let own = "24 1 0:22 / /proc rw - proc proc rw\n30 24 0:26 / /proc/sys/fs/binfmt_misc rw - autofs a rw\n";
        assert!(is_masked(&format!("{own}{masked}")) && !is_masked(own));
    }
}
