//! Every control has a fix on every kind of host, and a reason where there is one to name.

use super::*;

const HOST_KINDS: [HostKind; 8] = [
    HostKind::Host,
    HostKind::Systemd,
    HostKind::Wsl2,
    HostKind::Lxc,
    HostKind::Docker,
    HostKind::Podman,
    HostKind::Kubernetes,
    HostKind::Container,
];
const CONTROLS: [&str; 14] = [
    "pid namespace",
    "user namespace",
    "memory",
    "process limits",
    "core dumps",
    "landlock",
    "seccomp",
    "whole box",
    "workspaces",
    "workspace forks",
    "workspace ids",
    "workspace on disk",
    "shared sandbox",
    "evaluation files",
];
/// Words about one kind of host, which no fix for another kind may contain.
const WORDS_OF_ONE: [(&str, &[HostKind]); 8] = [
    ("docker run", &[HostKind::Docker]),
    ("podman run", &[HostKind::Podman]),
    ("securityContext", &[HostKind::Kubernetes]),
    ("the node", &[HostKind::Kubernetes]),
    ("in the unit", &[HostKind::Systemd, HostKind::Kubernetes]),
    ("wsl", &[HostKind::Wsl2]),
    ("security.nesting", &[HostKind::Lxc]),
    (
        "the container",
        &[
            HostKind::Lxc,
            HostKind::Docker,
            HostKind::Podman,
            HostKind::Kubernetes,
            HostKind::Container,
        ],
    ),
];

fn fix(control: &str, host: HostKind, obstacles: &Obstacles) -> Remedy {
    remedy(control, &HostInfo { kind: host, obstacles: obstacles.clone() })
}

/// No obstacle, each alone, and all at once.
fn every_obstacles() -> Vec<Obstacles> {
    let mut all = Obstacles::default();
    let mut every = vec![Obstacles::default()];
    let raise: [fn(&mut Obstacles); 9] = [
        |obstacles| obstacles.not_root = true,
        |obstacles| obstacles.no_sys_admin = true,
        |obstacles| obstacles.in_user_namespace = true,
        |obstacles| obstacles.seccomp = true,
        |obstacles| obstacles.apparmor = true,
        |obstacles| obstacles.masked_proc = true,
        |obstacles| obstacles.no_user_namespaces = true,
        |obstacles| obstacles.no_unprivileged_clone = true,
        |obstacles| obstacles.apparmor_user_namespaces = true,
    ];
    for raise in raise {
        let mut one = Obstacles::default();
        raise(&mut one);
        raise(&mut all);
        every.push(one);
    }
    every.push(all);
    every
}

#[test]
fn every_control_has_a_fix_on_every_kind_of_host_and_for_no_other() {
    for control in CONTROLS {
        for host in HOST_KINDS {
            for obstacles in every_obstacles() {
                let fix = fix(control, host, &obstacles).fix;
                assert!(fix.len() > 10 && !fix.contains('\n'), "{control} {host:?}: {fix}");
                for (word, places) in WORDS_OF_ONE {
                    let is_its_own = !fix.contains(word) || places.contains(&host);
                    assert!(is_its_own, "{control} in {host:?}: {fix}");
                }
            }
        }
    }
}

#[test]
fn a_setting_that_forbids_user_namespaces_is_the_reason_and_the_fix() {
    for (obstacles, setting) in [
        (
            Obstacles { no_user_namespaces: true, ..Obstacles::default() },
            "user.max_user_namespaces",
        ),
        (
            Obstacles { no_unprivileged_clone: true, ..Obstacles::default() },
            "kernel.unprivileged_userns_clone",
        ),
        (
            Obstacles { apparmor_user_namespaces: true, ..Obstacles::default() },
            "kernel.apparmor_restrict_unprivileged_userns",
        ),
    ] {
        for host in HOST_KINDS {
            let Remedy { reasons, fix } = fix("user namespace", host, &obstacles);
            assert!(reasons[0].starts_with(setting), "{reasons:?}");
            assert!(fix.contains(&format!("sysctl -w {setting}=")), "{fix}");
            let other = remedy("memory", &HostInfo { kind: host, obstacles: obstacles.clone() });
            assert!(other.reasons.is_empty() && !other.fix.contains(setting), "{other:?}");
        }
    }
}

#[test]
fn the_fix_for_a_container_names_only_the_flags_it_lacks() {
    let by_default =
        Obstacles { no_sys_admin: true, seccomp: true, masked_proc: true, ..Obstacles::default() };
    for (host, flags) in [
        (
            HostKind::Docker,
            "docker run --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt systempaths=unconfined; or --privileged",
        ),
        (
            HostKind::Podman,
            "podman run --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt unmask=ALL; or --privileged",
        ),
        (
            HostKind::Kubernetes,
            "securityContext: capabilities.add: [SYS_ADMIN, NET_ADMIN], seccompProfile.type: Unconfined, procMount: Unmasked; or privileged: true",
        ),
    ] {
        assert_eq!(fix("pid namespace", host, &by_default).fix, flags);
    }
    let only_masked = Obstacles { masked_proc: true, ..Obstacles::default() };
    assert_eq!(
        fix("user namespace", HostKind::Docker, &only_masked).fix,
        "docker run --security-opt systempaths=unconfined; or --privileged"
    );
}

#[test]
fn a_missing_root_comes_before_engine_flags() {
    let obstacles =
        Obstacles { not_root: true, no_sys_admin: true, seccomp: true, ..Obstacles::default() };
    let Remedy { reasons, fix } = fix("pid namespace", HostKind::Host, &obstacles);
    assert_eq!(
        (reasons, fix.as_str()),
        (vec!["not started as root"], "start it as root: sudo cofferdam ...")
    );
    let Remedy { reasons, .. } = self::fix("seccomp", HostKind::Host, &obstacles);
    assert_eq!(reasons, ["under a seccomp filter of what started this"]);
    // A control that needs no privilege keeps its own fix.
    assert!(self::fix("core dumps", HostKind::Host, &obstacles).fix.contains("core_pattern"));
}
