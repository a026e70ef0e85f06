//! A model that works by chat completions, against a real server.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use cofferdam::cases::{AgentTokens, Executor, HarnessEnd, HarnessError, HarnessFault};

use super::endpoint::{Endpoint, Scripted, answer, asks, completion, says};
use super::stage::{KEY, Stage, content};
use crate::conformance::doors::WITHOUT_IMAGE;

fn yaml(endpoint: &Endpoint, more: &str) -> String {
    let url = endpoint.base_url();
    format!(
        "harnesses: {{chat: {{kind: openai, base_url: '{url}', api_key_env: MODEL_KEY{more}}}}}\n"
    )
}

fn work(
    stage: &Stage,
    cell: &dyn Executor,
    endpoint: &Endpoint,
) -> Result<HarnessEnd, HarnessError> {
    stage.work(cell, &yaml(endpoint, ""), "chat")
}

/// What the tools answered, in the last request.
fn told(endpoint: &Endpoint) -> Vec<String> {
    let came = endpoint.came();
    let messages = came.last().unwrap().messages().iter();
    let tools = messages.filter(|message| message["role"] == "tool");
    tools.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_model_works_in_the_cell_until_it_has_nothing_more_to_say() {
    let Some(stage) = Stage::new() else { return };
    for kind in WITHOUT_IMAGE {
        let cell = stage.scene.started(kind, "");
        let endpoint = Endpoint::new([
            asks(&[
                ("bash", r#"{"command":"echo \"$PROVISIONED\"; pwd > here; exit 3"}"#),
                ("write_file", r#"{"path":"new/file","content":"text"}"#),
            ]),
            says("done"),
            says("more done"),
        ]);
        let task = "task: {prompt: Mend it., system_prompt: Be brief., turns: [More.]}\n";
        let more = ", temperature: 0.5, price_in: 2, price_out: 10";
        let case = format!("{task}{}", yaml(&endpoint, more));
        let end = stage.work(cell.as_ref(), &case, "chat").unwrap();
        assert_eq!((end.agent.outcome, end.agent.exit_code), ("exited", Some(0)), "{kind:?}");
        assert_eq!(end.agent.tokens, Some(AgentTokens { read: 3000, written: 300 }));
        assert_eq!(end.agent.cost_usd, Some(0.009));
        assert_eq!(end.output, "done\nmore done\n");
        assert_eq!(content(cell.as_ref(), "new/file").as_deref(), Some("text"), "{kind:?}");
        assert!(content(cell.as_ref(), "here").is_some(), "{kind:?}");
        check_requests(&endpoint);
        cell.stop();
    }
    let trace = stage.trace();
    let events: Vec<Value> =
        trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> =
        events.iter().map(|event| event["event"].as_str().unwrap()).take(9).collect();
    let wanted =
        ["request", "reply", "tool", "tool", "request", "reply", "request", "reply", "end"];
    assert_eq!(names, wanted);
    assert!(!trace.contains(KEY));
}

fn check_requests(endpoint: &Endpoint) {
    let came = endpoint.came();
    let call = |id: &str, name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"id": id, "type": "function", "function": function})
    };
    let calls = [
        call("c0", "bash", r#"{"command":"echo \"$PROVISIONED\"; pwd > here; exit 3"}"#),
        call("c1", "write_file", r#"{"path":"new/file","content":"text"}"#),
    ];
    let bash = "by the environment\n[exit code 3]";
    let messages = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "Mend it."}),
        json!({"role": "assistant", "content": "", "tool_calls": calls}),
        json!({"role": "tool", "tool_call_id": "c0", "content": bash}),
        json!({"role": "tool", "tool_call_id": "c1", "content": "wrote 4 bytes"}),
        json!({"role": "assistant", "content": "done"}),
        json!({"role": "user", "content": "More."}),
    ];
    for (index, (request, count)) in came.iter().zip([2, 5, 7]).enumerate() {
        assert_eq!(request.line, "POST /v1/chat/completions HTTP/1.1");
        assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
        assert_eq!(request.header("content-type"), Some("application/json"));
        let mut body = request.body.clone();
        let tools = body.as_object_mut().unwrap().remove("tools").unwrap();
        let names: Vec<&Value> =
            tools.as_array().unwrap().iter().map(|tool| &tool["function"]["name"]).collect();
        let wanted = ["bash", "read_file", "write_file", "edit_file", "grep", "list_dir"];
        assert_eq!(names, wanted);
        let wanted = json!({"model": "m", "temperature": 0.5, "messages": messages[..count]});
        assert_eq!(body, wanted, "request {index}");
    }
    assert_eq!(came.len(), 3);
}

#[test]
fn what_tools_find_and_their_faults_are_answers() {
    let Some(stage) = Stage::new() else { return };
    let calls = [
        ("read_file", r#"{"path":"kept.txt"}"#, "kept\n"),
        ("read_file", r#"{"path":"no-such"}"#, "error: "),
        ("read_file", r#"{"path":"/etc/passwd"}"#, "error: "),
        ("read_file", r#"{"path":"dir"}"#, "error: "),
        ("edit_file", r#"{"path":"kept.txt","old":"kept","new":"mended"}"#, "wrote 7 bytes"),
        ("edit_file", r#"{"path":"kept.txt","old":"kept","new":"mended"}"#, "error: 'old' is not"),
        (
            "edit_file",
            r#"{"path":"kept.txt","old":"e","new":"x"}"#,
            "error: 'old' is in the file more",
        ),
        ("edit_file", r##"{"path":"script","old":"$1","new":"$2"}"##, "wrote "),
        ("bash", r#"{"command":"./script a b"}"#, "script b\n[exit code 0]"),
        ("bash", r#"{"command":"echo begun; sleep 60","timeout_s":1}"#, "begun\n[timed_out]"),
        ("bash", r#"{"command":"kill -9 $$"}"#, "[signaled by signal 9]"),
        ("bash", r#"{"command":"echo e >&2"}"#, "[stderr]\ne\n[exit code 0]"),
        ("grep", r#"{"pattern":"^inn(er)$"}"#, "dir/inner:1:inner"),
        ("grep", r#"{"pattern":"nowhere"}"#, "no match"),
        ("grep", r#"{"pattern":"-x","path":"--help"}"#, "--help"),
        ("list_dir", "", "dir/\n"),
        ("list_dir", r#"{"path":"no-such"}"#, "no-such"),
        ("browse", "{}", "error: there is no tool 'browse'"),
        ("bash", "{broken", "error: the arguments"),
        ("write_file", r#"{"path":"../../out","content":""}"#, "error: "),
    ];
    let asked: Vec<_> = calls.iter().map(|(name, arguments, _)| (*name, *arguments)).collect();
    let long = ("bash", r#"{"command":"seq 100000"}"#);
    for kind in WITHOUT_IMAGE {
        let cell = stage.scene.started(kind, "");
        let endpoint = Endpoint::new([asks(&asked), asks(&[long]), says("")]);
        work(&stage, cell.as_ref(), &endpoint).unwrap();
        let told = told(&endpoint);
        for ((name, arguments, wanted), told) in calls.iter().zip(&told) {
            assert!(told.contains(wanted), "{kind:?} {name} {arguments}: {told}");
        }
        let long = told.last().unwrap();
        assert!(long.len() < 33_000 && long.contains("bytes left out"), "{}", long.len());
        assert!(long.starts_with("1\n2\n") && long.ends_with("100000\n[exit code 0]"));
        cell.stop();
    }
}

#[test]
fn an_endpoint_that_is_busy_or_broken_is_asked_five_times() {
    let Some(stage) = Stage::new() else { return };
    let cell = stage.local();
    let busy = || answer(429, "retry-after: 0\r\n", &json!({"error": {"message": "slow down"}}));
    let broken = || answer(503, "retry-after: 0\r\n", &json!({"error": "down"}));
    let endpoint = Endpoint::new([busy(), broken(), busy(), broken(), says("done")]);
    assert_eq!(work(&stage, cell.as_ref(), &endpoint).unwrap().agent.exit_code, Some(0));
    assert_eq!(endpoint.came().len(), 5);

    let endpoint = Endpoint::new((0..6).map(|_| busy()));
    let error = work(&stage, cell.as_ref(), &endpoint).unwrap_err();
    assert_eq!((error.fault, endpoint.came().len()), (HarnessFault::Failed, 5));
    assert!(error.message.contains("429") && error.message.contains("after 5 tries"), "{error}");

    let cut = b"HTTP/1.1 200 X\r\ncontent-length: 999\r\n\r\n{\"choices\":[".to_vec();
    let endpoint = Endpoint::new([Scripted::Raw(cut), Scripted::Raw(Vec::new()), says("done")]);
    let started = Instant::now();
    assert_eq!(work(&stage, cell.as_ref(), &endpoint).unwrap().output, "done\n");
    assert!(endpoint.came().len() == 3 && started.elapsed() >= Duration::from_millis(1400));
}

#[test]
fn what_will_not_get_better_is_not_asked_again() {
    let Some(stage) = Stage::new() else { return };
    let cell = stage.local();
    let elsewhere = Endpoint::new([says("stolen")]);
    let location = format!("location: {}/chat/completions\r\n", elsewhere.base_url());
    let echoed = json!({"error": {"message": format!("wrong key {KEY}")}});
    let large = format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n", 1 << 30).into_bytes();
    let endless = [b"HTTP/1.1 200 X\r\n\r\n".to_vec(), vec![b' '; (16 << 20) + 1]].concat();
    for (scripted, words) in [
        (answer(307, &location, &json!({})), "redirects are not followed"),
        (answer(401, "", &echoed), "[redacted]"),
        (answer(404, "", &json!({})), "404"),
        (Scripted::Raw(large), "more than 16777216 bytes"),
        (Scripted::Raw(endless), "more than 16777216 bytes"),
    ] {
        let endpoint = Endpoint::new([scripted]);
        let error = work(&stage, cell.as_ref(), &endpoint).unwrap_err();
        assert!(error.message.contains(words) && !error.message.contains(KEY), "{error}");
        assert_eq!((error.fault, endpoint.came().len()), (HarnessFault::Failed, 1), "{words}");
    }
    assert_eq!(elsewhere.came().len(), 0);
    assert!(!stage.trace().contains(KEY));
}

#[test]
fn an_agent_that_ends_badly_has_an_end() {
    let Some(stage) = Stage::new() else { return };
    let cell = stage.local();
    let message = |content: &str| json!({"role": "assistant", "content": content});
    let long = json!({"error": {"code": "context_length_exceeded"}});
    for (script, more, code, requests) in [
        (vec![asks(&[("list_dir", "")]), asks(&[("list_dir", "")])], ", max_turns: 2", 1, 2),
        (vec![completion(&message(""), "content_filter")], "", 1, 1),
        (vec![answer(400, "", &long)], "", 1, 1),
        (vec![completion(&message("half"), "length"), says("whole")], "", 0, 2),
        (vec![completion(&json!({"content": null, "refusal": "no"}), "stop")], "", 0, 1),
        (vec![completion(&json!({"content": null}), "stop")], "", 0, 1),
    ] {
        let endpoint = Endpoint::new(script);
        let end = stage.work(cell.as_ref(), &yaml(&endpoint, more), "chat").unwrap();
        let found = (end.agent.outcome, end.agent.exit_code, endpoint.came().len());
        assert_eq!(found, ("exited", Some(code), requests));
    }
}

#[test]
fn a_slow_model_is_late_and_one_that_never_answers_has_failed() {
    let Some(stage) = Stage::new() else { return };
    let cell = stage.local();
    let silence = || Scripted::Silence(Duration::from_secs(30));
    let late = |script: Vec<Scripted>, seconds| {
        let endpoint = Endpoint::new(script);
        let started = Instant::now();
        let end = stage.work_for(cell.as_ref(), &yaml(&endpoint, ""), "chat", seconds);
        assert!(started.elapsed() < Duration::from_secs(20));
        end
    };
    let error = late(vec![silence()], 0.5).unwrap_err();
    assert_eq!(error.fault, HarnessFault::TimedOut);
    let end = late(vec![asks(&[("list_dir", "")]), silence()], 3.0).unwrap();
    assert_eq!((end.agent.outcome, end.agent.exit_code), ("timed_out", None));
    let busy = answer(429, "retry-after: 60\r\n", &json!({}));
    let error = late(vec![busy], 5.0).unwrap_err();
    assert!(error.message.contains("no time is left"), "{error}");
}

#[test]
fn a_cancelled_call_ends_at_once() {
    let Some(stage) = Stage::new() else { return };
    let cell = stage.local();
    let endpoint = Endpoint::new([Scripted::Silence(Duration::from_secs(30))]);
    let cancel = stage.cancel.clone();
    let canceller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        cancel.cancel();
    });
    let started = Instant::now();
    let end = work(&stage, cell.as_ref(), &endpoint).unwrap();
    canceller.join().unwrap();
    assert_eq!(end.agent.outcome, "cancelled");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn requests_of_a_posted_case_obey_its_network_and_the_rules_of_addresses() {
    let Some(mut stage) = Stage::new() else { return };
    stage.terms.trusts_case = false;
    let cell = stage.local();
    let endpoint = Endpoint::new([says("reached")]);
    let host = endpoint.base_url().replace("http://", "").replace("/v1", "");
    for (more, words) in [
        (String::new(), "not_listed"),
        (format!(", egress: ['{host}']"), "private_address"),
        (format!(", network: {{rules: {{'{host}': [{{plain: true, path: /v2/*}}]}}}}"), "no_rule"),
    ] {
        let error = stage.work(cell.as_ref(), &yaml(&endpoint, &more), "chat").unwrap_err();
        assert!(error.message.contains(words), "{more}: {error}");
    }
    assert_eq!(endpoint.came().len(), 0);
}

#[test]
fn a_rule_of_the_harness_writes_the_headers_of_its_requests() {
    let Some(stage) = Stage::new() else { return };
    let cell = stage.local();
    let endpoint = Endpoint::new([says(&format!("your key is {KEY}"))]);
    let (url, host) = (endpoint.base_url(), endpoint.base_url().replace("http://", ""));
    let host = host.replace("/v1", "");
    let yaml = format!(
        "harnesses:
  chat:
    kind: openai
    base_url: '{url}'
    network:
      rules: {{'{host}': [{{plain: true, methods: [POST], path: /v1/*, headers: {{x-api-key: '{{{{secret.k}}}}'}}}}]}}
      secrets: {{k: {{value: {{env: MODEL_KEY}}, hosts: ['{host}']}}}}
"
    );
    let end = stage.work(cell.as_ref(), &yaml, "chat").unwrap();
    assert_eq!(end.output, "your key is [redacted]\n");
    let came = endpoint.came();
    assert_eq!(came[0].header("x-api-key"), Some(KEY));
    assert_eq!(came[0].header("authorization"), None);
}
