//! Times of requests, each against a control in the same run.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::scene::{EngineScene, scene};

/// How long a fork of `source` takes.
fn fork_time(scene: &EngineScene, source: &str) -> Duration {
    let began = Instant::now();
    let reply = scene.post(&format!("{source}/fork"), &json!({}));
    let took = began.elapsed();
    assert_eq!(reply.status, 201);
    scene.delete(&format!("/v1/workspaces/{}", reply.json()["workspace_id"].as_str().unwrap()));
    took
}

#[test]
fn a_fork_of_100_mb_costs_about_as_much_as_one_of_nothing() {
    const ROUNDS: usize = 15;
    let Some(scene) = scene(&[]) else { return };
    let (full, empty) = (scene.create(&json!({})), scene.create(&json!({})));
    scene.sh(&full, "for i in 1 2 3 4 5 6 7 8 9 10; do head -c 10M /dev/urandom >work/$i; done");
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (times, source) in times.iter_mut().zip([&full, &empty]) {
            times.push(fork_time(&scene, source));
        }
        // What a copy of the files would cost at least.
        let began = Instant::now();
        scene.sh(&full, "cat work/* >/dev/null");
        times[2].push(began.elapsed());
    }
    let [full, empty, read] = times.map(|mut times| {
        times.sort();
        times[ROUNDS / 2]
    });
    println!("fork of 100 MB {full:?}, of nothing {empty:?}; a program that reads it {read:?}");
    assert!(full < 4 * empty, "{full:?} against {empty:?}");
}
