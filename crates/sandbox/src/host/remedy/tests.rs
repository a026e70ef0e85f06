//! A fix in every place for every control, and the reason where there is one to name.

use super::*;

const ENVIRONMENTS: [Environment; 8] = [
    Environment::Host,
    Environment::Systemd,
    Environment::Wsl2,
    Environment::Lxc,
    Environment::Docker,
    Environment::Podman,
    Environment::Kubernetes,
    Environment::Container,
];
const CONTROLS: [&str; 8] = [
    "pid namespace",
    "user namespace",
    "memory",
    "process limits",
    "core dumps",
    "landlock",
    "seccomp",
    "whole box",
];
/// Words that speak of one kind of place, and no other place's fix may say.
const WORDS_OF_ONE: [(&str, &[Environment]); 8] = [
    ("docker run", &[Environment::Docker]),
    ("podman run", &[Environment::Podman]),
    ("securityContext", &[Environment::Kubernetes]),
    ("the node", &[Environment::Kubernetes]),
    ("in the unit", &[Environment::Systemd, Environment::Kubernetes]),
    ("wsl", &[Environment::Wsl2]),
    ("security.nesting", &[Environment::Lxc]),
    (
        "the container",
        &[
            Environment::Lxc,
            Environment::Docker,
            Environment::Podman,
            Environment::Kubernetes,
            Environment::Container,
        ],
    ),
];

fn fix(control: &str, environment: Environment, walls: &Walls) -> Remedy {
    remedy(control, &Place { environment, walls: walls.clone() })
}

/// No wall, each alone, and all at once.
fn every_walls() -> Vec<Walls> {
    let mut all = Walls::default();
    let mut every = vec![Walls::default()];
    let raise: [fn(&mut Walls); 9] = [
        |walls| walls.not_root = true,
        |walls| walls.no_sys_admin = true,
        |walls| walls.in_user_namespace = true,
        |walls| walls.seccomp = true,
        |walls| walls.apparmor = true,
        |walls| walls.masked_proc = true,
        |walls| walls.no_user_namespaces = true,
        |walls| walls.no_unprivileged_clone = true,
        |walls| walls.apparmor_user_namespaces = true,
    ];
    for raise in raise {
        let mut one = Walls::default();
        raise(&mut one);
        raise(&mut all);
        every.push(one);
    }
    every.push(all);
    every
}

#[test]
fn every_control_has_a_fix_in_every_place_and_for_no_other() {
    for control in CONTROLS {
        for environment in ENVIRONMENTS {
            for walls in every_walls() {
                let fix = fix(control, environment, &walls).fix;
                assert!(fix.len() > 10 && !fix.contains('\n'), "{control} {environment:?}: {fix}");
                for (word, places) in WORDS_OF_ONE {
                    let is_its_own = !fix.contains(word) || places.contains(&environment);
                    assert!(is_its_own, "{control} in {environment:?}: {fix}");
                }
            }
        }
    }
}

#[test]
fn a_setting_that_forbids_user_namespaces_is_the_reason_and_the_fix() {
    for (walls, setting) in [
        (Walls { no_user_namespaces: true, ..Walls::default() }, "user.max_user_namespaces"),
        (
            Walls { no_unprivileged_clone: true, ..Walls::default() },
            "kernel.unprivileged_userns_clone",
        ),
        (
            Walls { apparmor_user_namespaces: true, ..Walls::default() },
            "kernel.apparmor_restrict_unprivileged_userns",
        ),
    ] {
        for environment in ENVIRONMENTS {
            let Remedy { reasons, fix } = fix("user namespace", environment, &walls);
            assert!(reasons[0].starts_with(setting), "{reasons:?}");
            assert!(fix.contains(&format!("sysctl -w {setting}=")), "{fix}");
            let other = remedy("memory", &Place { environment, walls: walls.clone() });
            assert!(other.reasons.is_empty() && !other.fix.contains(setting), "{other:?}");
        }
    }
}

#[test]
fn a_container_is_told_the_flags_it_lacks_and_no_others() {
    let by_default =
        Walls { no_sys_admin: true, seccomp: true, masked_proc: true, ..Walls::default() };
    for (environment, flags) in [
        (
            Environment::Docker,
            "docker run --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt systempaths=unconfined; or --privileged",
        ),
        (
            Environment::Podman,
            "podman run --cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined --security-opt unmask=ALL; or --privileged",
        ),
        (
            Environment::Kubernetes,
            "securityContext: capabilities.add: [SYS_ADMIN, NET_ADMIN], seccompProfile.type: Unconfined, procMount: Unmasked; or privileged: true",
        ),
    ] {
        assert_eq!(fix("pid namespace", environment, &by_default).fix, flags);
    }
    let only_masked = Walls { masked_proc: true, ..Walls::default() };
    assert_eq!(
        fix("user namespace", Environment::Docker, &only_masked).fix,
        "docker run --security-opt systempaths=unconfined; or --privileged"
    );
}

#[test]
fn who_starts_it_comes_before_how() {
    let walls = Walls { not_root: true, no_sys_admin: true, seccomp: true, ..Walls::default() };
    let Remedy { reasons, fix } = fix("pid namespace", Environment::Host, &walls);
    assert_eq!(
        (reasons, fix.as_str()),
        (vec!["not started as root"], "start it as root: sudo cofferdam ...")
    );
    let Remedy { reasons, .. } = self::fix("seccomp", Environment::Host, &walls);
    assert_eq!(reasons, ["under a seccomp filter of what started this"]);
    // What is no question of rights stays one of its own.
    assert!(self::fix("core dumps", Environment::Host, &walls).fix.contains("core_pattern"));
}
