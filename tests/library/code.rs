//! Code blocks.

use std::sync::Arc;
use std::time::Duration;

use cofferdam::engine::{
    BlockStatus, CodeBlock, CodeExecutionInput, CodeExecutor, EngineCode, ExecuteRequest,
    ExecutionAnswer, OutputSpec, SandboxCodeExecutor, SandboxEngine, Workspace, result_string,
};

use crate::bench::{bench, bench_with};

fn block(language: &str, code: &str) -> CodeBlock {
    CodeBlock { language: language.to_owned(), code: code.to_owned() }
}

fn input(execution_id: &str, blocks: &[(&str, &str)]) -> CodeExecutionInput {
    let code_blocks = blocks.iter().map(|(language, code)| block(language, code)).collect();
    CodeExecutionInput { code_blocks, execution_id: execution_id.to_owned() }
}

#[test]
fn blocks_run_in_order_and_a_failure_stops_none() {
    let Some(bench) = bench() else { return };
    let executor = SandboxCodeExecutor::new(Arc::new(bench.engine));
    let blocks = [("python", "print(1)"), ("bash", "exit 3"), ("cobol", ""), ("sh", "echo 4")];
    let result = executor.execute_code(input("", &blocks)).unwrap();
    let text = result_string(&result);
    assert!(
        text.starts_with("Code execution result:\n1\nError executing code block 1: "),
        "{text}"
    );
    assert!(text.contains("exit status 3\n"), "{text}");
    assert!(text.contains("block 2: unsupported language: cobol\n4\n"), "{text}");
    assert_eq!(executor.code_block_delimiter().start, "```");
}

#[test]
fn a_stateful_executor_keeps_variables_for_a_label_and_collects() {
    let Some(bench) = bench() else { return };
    let outputs = OutputSpec { globs: vec!["$OUTPUT_DIR/*".into()], ..OutputSpec::default() };
    let executor = SandboxCodeExecutor::new(Arc::new(bench.engine)).stateful().outputs(outputs);
    let execute = |label, code| executor.execute_code(input(label, &[("py", code)])).unwrap();
    assert_eq!(execute("a", "x = 1; open('out/f', 'w').write('file')\nprint()").output, "\n");
    let again = execute("a", "print(x)");
    assert_eq!((&*again.output, &*again.output_files[0].content), ("1\n", "file"));
    assert!(execute("b", "x").output.contains("NameError"));
    let error = executor.execute_code(input("", &[("py", "1")])).unwrap_err();
    assert_eq!(error.code, EngineCode::InvalidRequest);
}

#[test]
fn calls_of_one_context_take_turns() {
    let Some(bench) = bench() else { return };
    let executor = SandboxCodeExecutor::new(Arc::new(bench.engine)).stateful();
    executor.execute_code(input("a", &[("py", "n = 0")])).unwrap();
    let code = "was = n\nfor _ in range(100000): pass\nn = was + 1";
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| executor.execute_code(input("a", &[("py", code)])).unwrap());
        }
    });
    assert_eq!(executor.execute_code(input("a", &[("py", "print(n)")])).unwrap().output, "8\n");
}

/// One block in a context of `workspace`.
fn execute(
    engine: &SandboxEngine,
    workspace: &Workspace,
    (language, code): (&str, &str),
    timeout_ms: u64,
) -> ExecutionAnswer {
    let request = ExecuteRequest {
        code_blocks: Some(vec![block(language, code)]),
        workspace_id: Some(workspace.id.clone()),
        stateful: Some(true),
        timeout_ms: Some(timeout_ms),
        ..ExecuteRequest::default()
    };
    engine.execute(request).unwrap()
}

/// The engine gives interrupted code longer than any load can take from it: that it is killed after a second
/// is for code that does not end.
#[test]
fn code_whose_time_is_over_is_interrupted_and_the_state_stays() {
    let long = Duration::from_secs(240);
    let Some(bench) = bench_with(|builder| builder.interrupt_wait(long)) else { return };
    let (engine, workspace) = (&bench.engine, bench.workspace());
    for (language, set, endless, get) in [
        ("python", "x = 7", "print('begun')\nwhile True: pass", "x"),
        ("js", "const x = 7", "console.log('begun'); while (true);", "x"),
        ("js", "1", "console.log('begun'); await new Promise(() => {})", "x"),
    ] {
        execute(engine, &workspace, (language, set), 0);
        let answer = execute(engine, &workspace, (language, endless), 400);
        let ended = &answer.blocks[0];
        assert_eq!((ended.status, ended.limit), (BlockStatus::TimedOut, Some("wall_time")));
        assert!(!ended.state_lost && ended.error.is_some(), "{ended:?}");
        // Its time may be over before it has begun to print.
        assert!(["", "begun\n"].contains(&&*ended.stdout), "{ended:?}");
        let next = execute(engine, &workspace, (language, get), 0);
        assert_eq!(next.blocks[0].results[0].text.as_deref(), Some("7"), "{next:?}");
    }
}

/// Waits for the file that the code writes when it has begun, and interrupts it then.
#[test]
fn what_interrupted_code_has_printed_is_kept() {
    let long = Duration::from_secs(240);
    let Some(bench) = bench_with(|builder| builder.interrupt_wait(long)) else { return };
    let (engine, workspace) = (&bench.engine, bench.workspace());
    let code =
        "import os\nprint('begun', flush=True)\nopen('begun', 'w').close()\nwhile True: pass";
    execute(engine, &workspace, ("python", "1"), 0);
    let contexts = engine.service().contexts(engine.owner(), &workspace.id, 1, None).unwrap().0;
    let id = contexts[0].context_id().to_owned();
    let answer = std::thread::scope(|scope| {
        let executing = scope.spawn(|| execute(engine, &workspace, ("python", code), 240_000));
        while bench.sh(&workspace, "ls").lines().all(|name| name != "begun") {}
        engine.service().context(engine.owner(), &workspace.id, &id).unwrap().interrupt();
        executing.join().unwrap()
    });
    let block = &answer.blocks[0];
    assert_eq!((block.status, &*block.stdout), (BlockStatus::Error, "begun\n"), "{block:?}");
    assert_eq!(block.error.as_ref().unwrap().name, "KeyboardInterrupt");
}
