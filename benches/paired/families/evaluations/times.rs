//! What an evaluation takes beyond the agent and the tests.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::scene::{Evaluations, agent};
use crate::report::Report;
use crate::stats::{Spread, median};

/// The files of the large repository, a hundred to a directory.
const FILES: usize = 100_000;
/// Prints the time of the host in seconds.
const CLOCK: &str = "echo $EPOCHREALTIME";

pub fn measure(report: &mut Report) {
    start_and_rest(report);
    difference(report);
}

fn start_and_rest(report: &mut Report) {
    let mut firsts = Vec::new();
    let mut cached = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..report.pairs.div_ceil(5) {
        let scene = Evaluations::start();
        let repository = scene.repository();
        fs::write(repository.join("a"), "1\n").unwrap();
        let task = scene.serve_commit(&repository);
        let body = agent(&task, CLOCK);
        firsts.push(rest(&scene.resolve(&body)));
        for _ in 0..5 {
            let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
            let result = scene.resolve(&body);
            let began: f64 = result["agent_output"].as_str().unwrap().trim().parse().unwrap();
            starts.push((began - before) * 1e3);
            cached.push(rest(&result));
        }
    }
    let row = |report: &mut Report, key, values: &[f64]| {
        let spread = Spread::of(values.iter().copied());
        report.row(key, median(values.iter().copied()), 0.0, spread);
    };
    row(report, "evaluation_start", &starts);
    row(report, "evaluation_first", &firsts);
    row(report, "evaluation_cached", &cached);
}

/// The time of an evaluation without its agent and its tests, milliseconds.
fn rest(result: &Value) -> f64 {
    let tests = result["test_results"].as_array().unwrap();
    let tests: f64 = tests.iter().map(|test| test["duration_ms"].as_f64().unwrap()).sum();
    let agent = result["agent"]["usage"]["wall_ms"].as_f64().unwrap();
    result["duration_ms"].as_f64().unwrap() - tests - agent
}

/// The step of the tests without the tests: the comparison, the patch and the trees that tests get.
fn difference(report: &mut Report) {
    let scene = Evaluations::start();
    let repository = scene.repository();
    for number in 0..FILES {
        let directory = repository.join((number / 100).to_string());
        if number % 100 == 0 {
            fs::create_dir(&directory).unwrap();
        }
        fs::write(directory.join(format!("{number}.txt")), format!("{number}\n")).unwrap();
    }
    let body = agent(
        &scene.serve_commit(&repository),
        "echo x >500/50000.txt; rm 501/50100.txt; echo new >502/new.txt",
    );
    scene.resolve(&body);
    let taken: Vec<f64> = (0..report.pairs.div_ceil(5))
        .map(|_| {
            let result = scene.resolve(&body);
            assert_eq!(result["patch"]["files"], 3, "{:#}", result["patch"]);
            let tests = result["test_results"].as_array().unwrap();
            let tests: f64 = tests.iter().map(|test| test["duration_ms"].as_f64().unwrap()).sum();
            let phases = result["phases"].as_array().unwrap();
            let phase = phases.iter().find(|phase| phase["step"] == "running_tests").unwrap();
            phase["duration_ms"].as_f64().unwrap() - tests
        })
        .collect();
    let spread = Spread::of(taken.iter().copied());
    report.row("evaluation_difference", median(taken.iter().copied()), 0.0, spread);
}
