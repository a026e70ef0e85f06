//! Forks and snapshots while something uses the files.

use std::thread;

use cofferdam_test_server::service::wait_until;
use serde_json::json;

use super::{SOON, fork, path_of, put, snapshot, start, used_bytes};
use crate::scene::{EngineScene, scene};

#[test]
fn a_fork_of_running_programs_is_of_one_moment_and_they_go_on() {
    let Some(scene) = scene(&[]) else { return };
    let source = scene.create(&json!({}));
    // The files between the two make a copy of both take longer than a step of the program.
    let script = "
import os
for number in range(300):
    with open(f'm{number}', 'w') as file: file.write('x' * 10000)
def write(name, number):
    with open('new', 'w') as file: file.write(str(number))
    os.rename('new', name)
open('shared', 'w').write('0' * 20)
shared = open('shared', 'r+b', 0)
number = 0
while True:
    for name in ('a', 'b', 'z'): write(name, number)
    os.pwrite(shared.fileno(), b'%020d' % number, 0)
    if number == 1: open('ready', 'w')
    number += 1
";
    let session = start(&scene, &source, script);
    let counters = |workspace: &str| -> [u64; 4] {
        ["a", "b", "z", "shared"].map(|name| {
            let body = scene.get(&format!("{workspace}/files?path={name}")).body;
            String::from_utf8(body).unwrap().parse().unwrap()
        })
    };
    let mut last = 0;
    for round in 0..12 {
        let copy = if round % 2 == 0 {
            fork(&scene, &source, &json!({}))
        } else {
            scene.create(&json!({"snapshot": snapshot(&scene, &source)["snapshot_id"]}))
        };
        let [a, b, z, shared] = counters(&copy);
        // The program writes them in this order, each once in a step.
        assert!(a >= b && b >= z && z >= shared && shared + 1 >= a, "{a} {b} {z} {shared}");
        assert!(a >= last, "{a} after {last}");
        last = a;
        assert_eq!(counters(&copy), [a, b, z, shared], "nothing runs in it");
        scene.delete(&copy);
        wait_until("the program goes on", SOON, || counters(&source)[0] > last);
    }
    assert_eq!(scene.get(&session).json()["status"], "running");
    assert_eq!(scene.delete(&session).status, 204);
    // Nothing runs any more, and the layers were never exchanged under the program.
    let [a, ..] = counters(&fork(&scene, &source, &json!({})));
    assert!(a >= last);
}

#[test]
fn forks_snapshots_programs_writes_and_deletions_at_once_all_end_well() {
    const ROUNDS: usize = 15;
    let Some(scene) = scene(&[("ENGINE_RUNS_MAX", "8")]) else { return };
    let source = scene.create(&json!({}));
    put(&scene, &source, "work/kept", b"kept");
    let (scene, source) = (&scene, source.as_str());
    thread::scope(|scope| {
        let rounds = |job: fn(&EngineScene, &str, usize)| {
            scope.spawn(move || (0..ROUNDS).for_each(|round| job(scene, source, round)))
        };
        let jobs = [
            rounds(|scene, source, _| {
                let copy = fork(scene, source, &json!({}));
                assert_eq!(scene.sh(&copy, "cat work/kept"), "kept");
                assert_eq!(scene.delete(&copy).status, 200);
            }),
            rounds(|scene, source, _| {
                let taken = snapshot(scene, source);
                let copy = scene.create(&json!({"snapshot": taken["snapshot_id"]}));
                assert_eq!(scene.delete(&path_of(&taken)).status, 204);
                let kept = scene.get(&format!("{copy}/files?path=work/kept"));
                assert_eq!(kept.body, b"kept");
                assert_eq!(scene.delete(&copy).status, 200);
            }),
            rounds(|scene, source, round| {
                let script = format!("echo {round} >work/program; cat work/kept; rm work/program");
                assert_eq!(scene.sh(source, &script), "kept");
            }),
            rounds(|scene, source, round| {
                let name = format!("work/file{}", round % 3);
                assert!(put(scene, source, &name, &vec![7; 100_000]).status < 300);
                let target = format!("{source}/files?path={name}");
                assert_eq!(scene.get(&target).body.len(), 100_000);
                assert_eq!(scene.delete(&target).status, 204);
            }),
        ];
        jobs.into_iter().for_each(|job| job.join().unwrap());
    });
    assert_eq!(scene.sh(source, "ls work"), "kept\n");
    wait_until("the layers are merged", SOON, || used_bytes(scene, source) < 64 << 10);
}
