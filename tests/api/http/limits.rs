//! Rows 20 and 22 of the contract: the limits of input and output.

use std::time::{Duration, Instant};

use cofferdam_test_server::client::{post, solution, solution_within};
use cofferdam_test_server::service::Setup;

const PAYLOAD_TOO_LARGE: &str = r#"{"error":"payload too large"}"#;
const OUTPUT_TOO_LARGE: &str = r#"{"error":"output too large"}"#;

/// A valid body of `bytes` bytes.
fn body_of(bytes: usize) -> String {
    let script = "echo hi\n#";
    let short = solution(script).to_string().len();
    solution(&format!("{script}{}", "x".repeat(bytes - short))).to_string()
}

fn chunked(body: &str) -> String {
    format!(
        "POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    )
}

#[test]
fn a_body_of_exactly_the_limit_is_accepted_and_a_longer_one_refused() {
    for (setup, limit) in
        [(Setup::shell(), 1 << 20), (Setup::shell().env("RUN_INPUT_MAX", "1000"), 1000)]
    {
        let service = setup.start();
        let (whole, longer) = (body_of(limit), body_of(limit + 1));
        assert_eq!(service.ask(post("", &whole)).stdout(), "hi\n");
        assert_eq!(service.ask(chunked(&whole)).stdout(), "hi\n");
        service.ask(post("", &longer)).assert_json(413, PAYLOAD_TOO_LARGE);
        service.ask(chunked(&longer)).assert_json(413, PAYLOAD_TOO_LARGE);
        // The length is checked before the JSON.
        service.ask(post("", "x".repeat(limit + 1))).assert_json(413, PAYLOAD_TOO_LARGE);
    }
}

#[test]
fn a_body_limit_of_zero_means_unlimited() {
    let service = Setup::shell().env("RUN_INPUT_MAX", "0").start();
    let long = body_of(3 << 20);
    assert_eq!(service.ask(post("", &long)).stdout(), "hi\n");
    assert_eq!(service.ask(chunked(&long)).stdout(), "hi\n");
}

#[test]
fn each_stream_may_have_exactly_as_many_bytes_as_the_limit() {
    for (setup, limit) in
        [(Setup::shell(), 1 << 20), (Setup::shell().env("RUN_OUTPUT_MAX", "4097"), 4097)]
    {
        let service = setup.start();
        let print = |bytes: usize| format!("head -c {bytes} /dev/zero | tr '\\0' x");
        let (whole, longer) = (print(limit), print(limit + 1));
        let finished = service.run(&format!("{whole}; {whole} >&2; exit 4")).finished();
        assert_eq!(finished.exit_code, Some(4));
        assert_eq!((finished.stdout.len(), finished.stderr.len()), (limit, limit));
        for script in [longer.clone(), format!("{longer} >&2")] {
            let answer = service.run(&script);
            answer.assert_json(413, OUTPUT_TOO_LARGE);
            assert_eq!(answer.header("x-run-outcome"), Some("output_limit"));
        }
    }
}

#[test]
fn a_run_is_killed_as_soon_as_it_crosses_the_output_limit() {
    let service = Setup::shell().start();
    for script in ["yes", "yes >&2", "yes & yes >&2 & wait", "head -c 2000000 /dev/zero; sleep 60"]
    {
        let start = Instant::now();
        let answer = service.post(&solution_within("1m", script));
        answer.assert_json(413, OUTPUT_TOO_LARGE);
        assert!(start.elapsed() < Duration::from_secs(15), "{script}: {:?}", start.elapsed());
    }
}

#[test]
fn an_output_limit_of_zero_means_unlimited() {
    let service = Setup::shell().env("RUN_OUTPUT_MAX", "0").start();
    let stdout = service.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout();
    assert_eq!(stdout.len(), 3_000_000);
}
