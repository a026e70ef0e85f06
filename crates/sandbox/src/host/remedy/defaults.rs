//! The default fix for each control and each kind of host.

use crate::host::host_kind::HostKind;

/// Controls that share a fix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ControlKind {
    /// Namespaces, mounts, ids: the sandbox itself.
    Box,
    /// The mapping of uids.
    UserNamespace,
    /// Memory, processes, CPU.
    Cgroup,
    /// Process limits below the inherited ones.
    ProcessLimits,
    /// Core dumps that stay in the sandbox.
    CoreDumps,
    /// Landlock rules for files.
    Landlock,
    /// Filters of system calls.
    Filter,
    /// Forks of workspaces as overlays.
    Overlay,
    /// Workspaces with host uids of their own.
    IdMaps,
    /// Workspaces on disk.
    LoopDevice,
}

impl ControlKind {
    pub(super) fn of(control: &str) -> Self {
        match control {
            "memory" | "processes" | "cpu" | "cpu time" | "cgroup kill" | "shared sandbox" => {
                Self::Cgroup
            }
            "process limits" => Self::ProcessLimits,
            "user namespace" => Self::UserNamespace,
            "core dumps" => Self::CoreDumps,
            "landlock" => Self::Landlock,
            "seccomp" | "no_new_privs" => Self::Filter,
            "workspace forks" => Self::Overlay,
            "workspace ids" => Self::IdMaps,
            "workspace on disk" | "evaluation files" => Self::LoopDevice,
            _ => Self::Box,
        }
    }

    /// Whether a flag of the container engine enables it.
    pub(super) fn is_up_to_engine(self) -> bool {
        matches!(self, Self::Box | Self::UserNamespace | Self::Landlock | Self::Filter)
    }
}

/// The fix if nothing more specific is known.
pub(super) fn default_fix(control: ControlKind, host: HostKind) -> &'static str {
    match control {
        ControlKind::Box => for_boxes(host),
        ControlKind::UserNamespace => for_user_namespaces(host),
        ControlKind::Cgroup => for_cgroups(host),
        ControlKind::ProcessLimits => for_limits(host),
        ControlKind::CoreDumps => for_core_dumps(host),
        ControlKind::Landlock => for_landlock(host),
        ControlKind::Filter => for_filters(host),
        ControlKind::Overlay => for_overlays(host),
        ControlKind::IdMaps => for_id_maps(host),
        ControlKind::LoopDevice => for_loop_devices(host),
    }
}

fn for_boxes(host: HostKind) -> &'static str {
    match host {
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

fn for_user_namespaces(host: HostKind) -> &'static str {
    match host {
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

fn for_cgroups(host: HostKind) -> &'static str {
    match host {
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

fn for_limits(host: HostKind) -> &'static str {
    match host {
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

fn for_core_dumps(host: HostKind) -> &'static str {
    match host {
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

fn for_landlock(host: HostKind) -> &'static str {
    match host {
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

fn for_filters(host: HostKind) -> &'static str {
    match host {
        HostKind::Host | HostKind::Systemd => "a kernel with CONFIG_SECCOMP_FILTER",
        HostKind::Wsl2 => "a kernel with CONFIG_SECCOMP_FILTER (wsl --update)",
        HostKind::Kubernetes => "a node whose kernel has CONFIG_SECCOMP_FILTER",
        HostKind::Lxc | HostKind::Docker | HostKind::Podman | HostKind::Container => {
            "a host whose kernel has CONFIG_SECCOMP_FILTER"
        }
    }
}

fn for_overlays(host: HostKind) -> &'static str {
    match host {
        HostKind::Host | HostKind::Systemd => "a kernel with CONFIG_OVERLAY_FS (modprobe overlay)",
        HostKind::Wsl2 => "a kernel with CONFIG_OVERLAY_FS (wsl --update)",
        HostKind::Kubernetes => "a node whose kernel has CONFIG_OVERLAY_FS",
        HostKind::Lxc | HostKind::Docker | HostKind::Podman | HostKind::Container => {
            "a host whose kernel has CONFIG_OVERLAY_FS"
        }
    }
}

fn for_id_maps(host: HostKind) -> &'static str {
    match host {
        HostKind::Host | HostKind::Systemd => "Linux 6.3 or newer",
        HostKind::Wsl2 => "wsl --update, for Linux 6.3 or newer",
        HostKind::Kubernetes => "a node with Linux 6.3 or newer",
        HostKind::Lxc | HostKind::Docker | HostKind::Podman | HostKind::Container => {
            "a host with Linux 6.3 or newer"
        }
    }
}

fn for_loop_devices(host: HostKind) -> &'static str {
    match host {
        HostKind::Host => {
            "install e2fsprogs, modprobe loop, and ENGINE_STORE_DIR where files can be made"
        }
        HostKind::Systemd => {
            "install e2fsprogs, modprobe loop, and in the unit PrivateDevices=no and no DevicePolicy= that refuses /dev/loop*"
        }
        HostKind::Wsl2 => "wsl --update, and install e2fsprogs",
        HostKind::Lxc => {
            "/dev/loop-control and /dev/loop* as devices of the container, and e2fsprogs in it"
        }
        HostKind::Docker => {
            "docker run --privileged -v /dev:/dev, e2fsprogs in the image, and modprobe loop on the host"
        }
        HostKind::Podman => {
            "sudo podman run --privileged -v /dev:/dev, e2fsprogs in the image, and modprobe loop on the host"
        }
        HostKind::Kubernetes => {
            "securityContext: privileged: true and a hostPath volume of /dev, e2fsprogs in the image, and on the node: modprobe loop"
        }
        HostKind::Container => {
            "a container that is privileged and has the host's /dev, and e2fsprogs in the container"
        }
    }
}
