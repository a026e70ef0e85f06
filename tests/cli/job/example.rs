//! The example of the library works as documented.

#[allow(dead_code, reason = "its `main` is used when it is started directly")]
#[path = "../../../examples/run_job.rs"]
mod run_job;

#[test]
fn the_example_runs_a_job_and_prints_its_output_and_artifacts() {
    let mut out = Vec::new();
    run_job::run(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0], "hello from /workspace");
    assert!(lines[1].starts_with("out/answer.txt: 3 bytes at file:///"), "{text}");
}
