//! What dies with a program of a shared sandbox, and what does not.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cofferdam_test_server::host::{Footprint, Process, tenants};
use cofferdam_test_server::service::wait_until;
use serde_json::json;

use super::{SOON, processes, run, running, shared, shared_with, start};
use crate::exchange::{ask, engine_server};
use crate::scene::scene;

/// The file that freezes a group of version 1.
const STATE: &str = "freezer.state";
/// Leaves processes in every way that a program has: beside them there are the init, the program, and two
/// others.
const SCATTER: &str = "
sleep 611 &
setsid sleep 612 &
(setsid sh -c 'sleep 613 & exec sleep 614' &)
setsid sh -c 'sleep 615 &'
set -- /proc/[0-9]*
while [ $# -lt 9 ]; do sleep 0.05; set -- /proc/[0-9]*; done
touch scattered
";

#[test]
fn a_time_out_kills_all_that_a_program_started_and_no_neighbour() {
    let Some((scene, workspace)) = shared() else { return };
    scene.sh(&workspace, "sleep 600 &");
    let neighbour = start(&scene, &workspace, "echo up; sleep 601", &json!({}));
    wait_until("both have begun", SOON, || {
        [600, 601].iter().all(|n| running(&scene, &workspace, &format!("sleep {n}")).len() == 1)
    });
    let script = format!("{SCATTER}\nsleep 616");
    let result = run(&scene, &workspace, &script, &json!({"timeout_ms": 4000}));
    assert_eq!((&result["timed_out"], &result["limit"]), (&json!(true), &json!("wall_time")));
    assert_eq!(scene.get(&format!("{workspace}/stat?path=scattered")).status, 200, "{result}");
    for number in 611..=616 {
        let left = running(&scene, &workspace, &format!("sleep {number}"));
        assert!(left.is_empty(), "{left:?}");
    }
    assert_eq!(running(&scene, &workspace, "sleep 600").len(), 1);
    assert_eq!(running(&scene, &workspace, "sleep 601").len(), 1);
    assert_eq!(scene.get(&neighbour).json()["status"], "running");
}

#[test]
fn what_an_ended_session_left_dies_with_a_kill_and_not_with_a_close() {
    let Some((scene, workspace)) = shared() else { return };
    let keys = json!({});
    let [killed, closed] = [1, 2].map(|number| {
        let script = format!("sleep 62{number} & setsid sleep 62{number} & exit 3");
        let session = start(&scene, &workspace, &script, &keys);
        wait_until("it has ended", SOON, || scene.get(&session).json()["status"] == "exited");
        session
    });
    let count = |number: i32| running(&scene, &workspace, &format!("sleep 62{number}")).len();
    wait_until("both are executed", SOON, || (count(1), count(2)) == (2, 2));
    let state = scene.post(&format!("{killed}/kill"), &json!({}));
    assert_eq!((state.status, &state.json()["exit_code"]), (200, &json!(3)));
    assert_eq!((count(1), count(2)), (0, 2));
    assert_eq!(scene.delete(&closed).status, 204);
    assert_eq!(count(2), 2);
    assert_eq!(scene.get(&closed).status, 404);
    let named = running(&scene, &workspace, "sleep 622");
    assert!(named.iter().all(|process| process["session_id"].is_null()), "{named:?}");
}

#[test]
fn a_kill_of_a_running_session_asks_its_main_process_and_then_kills_all() {
    let Some((scene, workspace)) = shared() else { return };
    scene.sh(&workspace, "sleep 600 &");
    let polite = start(&scene, &workspace, "setsid sleep 631 & sleep 632", &json!({}));
    wait_until("it has begun", SOON, || running(&scene, &workspace, "sleep 631").len() == 1);
    let state = scene.post(&format!("{polite}/kill"), &json!({"grace_ms": 20000}));
    assert_eq!((state.status, &state.json()["signal"]), (200, &json!(15)), "{}", state.json());
    let result = scene.get(&format!("{polite}/result")).json();
    assert_eq!(result["outcome"], "signaled", "{result}");
    assert!(running(&scene, &workspace, "sleep 631").is_empty());
    let deaf = start(
        &scene,
        &workspace,
        "trap '' TERM; setsid sleep 633 & while :; do sleep 634; done",
        &json!({}),
    );
    wait_until("it has begun", SOON, || running(&scene, &workspace, "sleep 634").len() == 1);
    assert_eq!(scene.post(&format!("{deaf}/kill"), &json!({"grace_ms": 50})).status, 200);
    let result = scene.get(&format!("{deaf}/result")).json();
    assert_eq!(result["outcome"], "cancelled", "{result}");
    for number in [632, 633, 634] {
        assert!(running(&scene, &workspace, &format!("sleep {number}")).is_empty(), "{number}");
    }
    assert_eq!(running(&scene, &workspace, "sleep 600").len(), 1);
}

#[test]
fn a_restart_kills_everything_and_keeps_the_files() {
    let Some((scene, workspace)) = shared() else { return };
    scene.sh(&workspace, "echo kept >work/file; echo gone >/dev/shm/file; sleep 600 &");
    let session = start(&scene, &workspace, "sleep 601", &json!({}));
    let state = scene.post(&format!("{workspace}/restart"), &json!({}));
    assert_eq!((state.status, &state.json()["status"]), (200, &json!("active")));
    assert!(processes(&scene, &workspace).is_empty());
    assert!(tenants(scene.service.pid()).is_empty());
    wait_until("the session is told", SOON, || scene.get(&session).json()["status"] == "exited");
    let script = "cat work/file; cat /dev/shm/file 2>/dev/null || echo none";
    assert_eq!(scene.sh(&workspace, script), "kept\nnone\n");
    // Twice, and without a sandbox.
    for _ in 0..2 {
        assert_eq!(scene.post(&format!("{workspace}/restart"), &json!({})).status, 200);
    }
    assert_eq!(scene.sh(&workspace, "cat work/file"), "kept\n");
}

#[test]
fn programs_of_a_sandbox_that_breaks_end_and_the_next_has_a_new_one() {
    let Some((scene, workspace)) = shared() else { return };
    scene.sh(&workspace, "touch /dev/shm/file");
    let session = start(&scene, &workspace, "sleep 600", &json!({}));
    for init in cofferdam_test_server::host::inits(scene.service.pid()) {
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(init.pid),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
    }
    wait_until("the session is told", SOON, || scene.get(&session).json()["status"] == "exited");
    assert_eq!(scene.sh(&workspace, "ls /dev/shm"), "");
}

#[test]
fn what_is_left_keeps_no_workspace_from_being_idle() {
    let Some(scene) = scene(&[]) else { return };
    let body = json!({"sandbox": "workspace", "idle_ms": 2000});
    let workspace = scene.create(&body);
    scene.sh(&workspace, "sleep 600 &");
    assert_eq!(scene.get(&workspace).json()["runs"], 0);
    wait_until("it is gone", SOON, || scene.get(&workspace).status == 404);
    wait_until("nothing is left", SOON, || tenants(scene.service.pid()).is_empty());
}

#[test]
fn a_fork_has_the_files_of_one_moment_and_none_of_the_processes() {
    // Both run at once, also where there is little memory.
    let small = json!({"policy": {"max_disk_bytes": 64 << 20}});
    let Some((scene, workspace)) = shared_with(&small) else { return };
    let script = "n=0; while :; do n=$((n+1)); echo $n >a.new; mv a.new a; echo $n >b.new; mv b.new b; \
        [ $n = 3 ] && touch ready; done & until [ -e ready ]; do sleep 0.01; done";
    assert_eq!(run(&scene, &workspace, script, &json!({}))["exit_code"], 0);
    let number = |workspace: &str, name: &str| -> u64 {
        let body = scene.get(&format!("{workspace}/files?path={name}")).body;
        String::from_utf8(body).unwrap().trim().parse().unwrap()
    };
    for _ in 0..4 {
        let made = scene.post(&format!("{workspace}/fork"), &json!({}));
        assert_eq!(made.status, 201, "{}", made.json());
        assert_eq!(made.json()["sandbox"], "workspace");
        let copy = format!("/v1/workspaces/{}", made.json()["workspace_id"].as_str().unwrap());
        let (a, b) = (number(&copy, "a"), number(&copy, "b"));
        assert!(a == b || a == b + 1, "{a} {b}");
        assert!(processes(&scene, &copy).is_empty());
        assert_eq!(number(&copy, "a"), a, "nothing runs in it");
        assert_eq!(scene.sh(&copy, "echo ran"), "ran\n");
        scene.delete(&copy);
        wait_until("the program goes on", SOON, || number(&workspace, "a") > a);
    }
}

#[test]
fn a_killed_service_leaves_no_process_of_a_shared_sandbox() {
    let Some((mut scene, workspace)) = shared_with(&json!({})) else { return };
    scene.sh(&workspace, "sleep 600 & setsid sleep 600 &");
    let ours = tenants(scene.service.pid());
    assert!(ours.len() >= 3, "{ours:?}");
    scene.service.kill();
    let began = Instant::now();
    while ours.iter().any(Process::is_alive) {
        assert!(began.elapsed() < SOON, "alive");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The next start removes its groups.
    scene.kill_and_start();
}

/// Where cgroups of version 2 are mounted on a host that has both versions.
fn unified_beside_version_1() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_v1 = |line: &str| line.contains(" - cgroup ") && line.contains("freezer");
    let unified = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    mounts.lines().any(is_v1).then(|| unified.split(' ').nth(4).unwrap().into())
}

#[test]
fn what_a_killed_service_left_frozen_on_version_1_dies_at_the_next_start() {
    let Some(unified) = unified_beside_version_1() else { return };
    if scene(&[]).is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let start = || {
        let setup = engine_server(&directory.path().join("engine"));
        setup.env("JOBS", "off").without_cgroup(&unified).start()
    };
    let mut service = start();
    let post = |target: &str, body: serde_json::Value| {
        let reply = ask(&service, "POST", target, "", body.to_string().as_bytes());
        assert!(reply.status < 300, "{}", reply.json());
        reply.json()
    };
    let id = post("/v1/workspaces", json!({"sandbox": "workspace"}))["workspace_id"].clone();
    let run = format!("/v1/workspaces/{}/run", id.as_str().unwrap());
    post(&run, json!({"cmd": "sh", "args": ["-c", "sleep 600 & setsid sleep 600 &"]}));
    let ours = tenants(service.pid());
    assert!(ours.len() >= 3, "{ours:?}");
    // As a snapshot has it.
    let groups = Footprint::of(service.pid()).cgroups();
    let all = groups.into_iter().find(|path| path.ends_with("all") && path.join(STATE).exists());
    let all = all.expect("a group of version 1 that can be frozen");
    std::fs::write(all.join(STATE), "FROZEN").unwrap();
    let state = || std::fs::read_to_string(all.join(STATE)).unwrap();
    wait_until("all is frozen", SOON, || state() == "FROZEN\n");
    service.kill();
    assert_eq!(state(), "FROZEN\n");
    assert!(ours.iter().any(Process::is_alive), "nothing was frozen");
    let next = start();
    wait_until("all is dead", SOON, || !ours.iter().any(Process::is_alive));
    assert!(!all.exists());
    drop(next);
}

#[test]
fn a_service_that_ends_leaves_no_group_of_a_shared_sandbox() {
    for _ in 0..5 {
        let Some((mut scene, workspace)) = shared_with(&json!({})) else { return };
        scene.sh(&workspace, "sleep 600 & setsid sleep 600 &");
        let groups = Footprint::of(scene.service.pid()).cgroups();
        assert!(!groups.is_empty());
        scene.service.stop();
        let left: Vec<_> = groups.into_iter().filter(|group| group.exists()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
