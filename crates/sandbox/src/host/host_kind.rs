//! What kind of place this is, and what in it may stand in the way of a box.

use std::env;
use std::fs;
use std::path::Path;

use caps::{CapSet, Capability, has_cap};
use nix::unistd::geteuid;

use crate::launch::unprivileged;

/// What kind of place a process runs in, as far as it decides what to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// A machine of its own, real or virtual.
    Host,
    /// A unit of systemd's on such a machine.
    Systemd,
    /// Windows' Linux.
    Wsl2,
    /// A container of LXC, LXD, Incus or Proxmox.
    Lxc,
    /// A container of Docker's engine.
    Docker,
    /// A container of podman's.
    Podman,
    /// A pod.
    Kubernetes,
    /// A container of an engine not known here.
    Container,
}

/// Where a process runs, and under what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The kind.
    pub environment: Environment,
    /// What may stand in the way.
    pub walls: Walls,
}

/// What is around this process that can keep it from making boxes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walls {
    /// The user is not root.
    pub not_root: bool,
    /// CAP_SYS_ADMIN is not among our capabilities.
    pub no_sys_admin: bool,
    /// Root is not the machine's: ours is another user namespace.
    pub in_user_namespace: bool,
    /// A seccomp filter of whatever started us.
    pub seccomp: bool,
    /// An AppArmor profile that holds us.
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

impl Place {
    /// Looks around.
    pub fn look() -> Self {
        Self { environment: Environment::detect(), walls: Walls::read() }
    }
}

/// The marks that engines and kernels leave.
#[derive(Debug, Clone, Default)]
struct Marks {
    /// `KUBERNETES_SERVICE_HOST` is set, or a pod's secrets are mounted.
    kubernetes: bool,
    /// `/run/.containerenv`.
    containerenv: bool,
    /// `/.dockerenv`.
    dockerenv: bool,
    /// The variable `container`, ours or of the first process.
    container: String,
    /// The kernel's release.
    kernel: String,
    /// `/proc/self/cgroup`.
    cgroup: String,
    /// `INVOCATION_ID`, which a unit's processes inherit.
    invocation: bool,
}

impl Marks {
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

impl Environment {
    /// By the marks that are here.
    pub fn detect() -> Self {
        Self::of(&Marks::read())
    }

    fn of(marks: &Marks) -> Self {
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
            // Its first process says so of itself too.
            Self::Wsl2
        } else if !container.is_empty() {
            Self::Container
        } else if marks.invocation && is_in_unit(&marks.cgroup) {
            Self::Systemd
        } else {
            Self::Host
        }
    }

    /// The word of a report.
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

/// Whether the last unit on the way to one of our groups is a service. A login's shell is in a
/// scope, below a service that is the user's whole manager.
fn is_in_unit(cgroup: &str) -> bool {
    cgroup.lines().any(|line| {
        let path = line.splitn(3, ':').nth(2).unwrap_or_default();
        let is_unit = |part: &&str| part.ends_with(".service") || part.ends_with(".scope");
        path.rsplit('/').find(is_unit).is_some_and(|unit| unit.ends_with(".service"))
    })
}

impl Walls {
    fn read() -> Self {
        let is_zero = |path: &str| text_of(path).trim() == "0";
        let status = text_of("/proc/self/status");
        let profile = text_of("/proc/self/attr/current");
        // Of a namespace of our own we are root; what matters is who made it.
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

/// Whether a map of users leaves any out, as none but the machine's own does.
fn is_partial(uid_map: &str) -> bool {
    let words: Vec<&str> = uid_map.split_whitespace().collect();
    !words.is_empty() && words != ["0", "0", "4294967295"]
}

fn is_filtered(status_line: &str) -> bool {
    status_line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2")
}

/// Whether `/proc/self/attr/current` names an AppArmor profile that holds us. SELinux writes
/// contexts there, in four parts.
fn is_profile(current: &str) -> bool {
    let is_context = current.split(':').count() >= 4;
    !current.is_empty() && !is_context && current.ends_with("(enforce)")
}

fn is_masked(mountinfo: &str) -> bool {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    // Where formats of programs are registered there is a mount of the kernel's own kind.
    points.filter(|point| !point.ends_with("/binfmt_misc")).any(|point| point.starts_with("/proc/"))
}

/// What is in a small file; nothing where it cannot be read.
fn text_of(path: &str) -> String {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// Whether there is something at `path`; what cannot be looked at counts as not there.
fn exists(path: &str) -> bool {
    fs::symlink_metadata(Path::new(path)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_place_is_known_by_its_marks() {
        let marks = |change: fn(&mut Marks)| {
            let mut marks = Marks { kernel: "6.12.0-amd64".to_owned(), ..Marks::default() };
            change(&mut marks);
            marks
        };
        for (marks, environment) in [
            (marks(|_| {}), Environment::Host),
            (marks(|m| m.kubernetes = true), Environment::Kubernetes),
            (
                marks(|m| {
                    m.kubernetes = true;
                    m.dockerenv = true;
                }),
                Environment::Kubernetes,
            ),
            (marks(|m| m.containerenv = true), Environment::Podman),
            (marks(|m| m.container = "podman".into()), Environment::Podman),
            (marks(|m| m.dockerenv = true), Environment::Docker),
            (marks(|m| m.container = "lxc".into()), Environment::Lxc),
            (marks(|m| m.container = "systemd-nspawn".into()), Environment::Container),
            (marks(|m| m.kernel = "5.15.90.1-Microsoft-standard-WSL2".into()), Environment::Wsl2),
            (
                marks(|m| {
                    m.kernel = "6.6.36.6-microsoft-standard-WSL2".into();
                    m.container = "wsl".into();
                }),
                Environment::Wsl2,
            ),
            (
                marks(|m| {
                    m.invocation = true;
                    m.cgroup = "0::/system.slice/cofferdam.service\n".into();
                }),
                Environment::Systemd,
            ),
            // A shell somebody logged in to, of whose manager it inherits the mark.
            (
                marks(|m| {
                    m.invocation = true;
                    m.cgroup = "0::/user.slice/user-0.slice/session-3.scope\n".into();
                }),
                Environment::Host,
            ),
            (marks(|m| m.cgroup = "0::/system.slice/cron.service".into()), Environment::Host),
        ] {
            assert_eq!(Environment::of(&marks), environment, "{marks:?}");
        }
    }

    #[test]
    fn a_unit_is_known_by_the_last_part_that_is_one() {
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
    fn walls_are_read_from_what_the_kernel_writes() {
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
