//! What is left of an engine that was dropped: nothing.

use std::fs;
use std::time::Duration;

use cofferdam::engine::{
    CreateRequest, EngineCode, ProgramRunner, ProgramSession, ProgramStateProvider, SandboxEngine,
    SandboxScope, WorkspaceManager, WorkspacePolicy,
};

use crate::bench::{Bench, bench, sh};

/// Processes of this host whose arguments have `word`.
fn processes_with(word: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| line.windows(word.len()).any(|part| part == word.as_bytes())).count()
}

#[test]
fn dropping_the_engine_kills_programs_sessions_and_kernels() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let word = format!("1000.{}", std::process::id());
    let script = format!("setsid sleep {word} & echo begun; sleep {word}");
    let session = bench.engine.start_session(&workspace, sh(&script).interactive()).unwrap();
    let other = bench.engine.start_session(&workspace, sh(&script).interactive()).unwrap();
    other.wait_output(Duration::from_secs(60));
    session.wait_output(Duration::from_secs(60));
    assert!(processes_with(&word) >= 4, "they live");
    let Bench { engine, .. } = bench;
    let running = std::thread::scope(|scope| {
        // A run in another thread ends before the engine can be dropped: it borrows it.
        scope.spawn(|| engine.run_program(&workspace, sh("exit 5"))).join().unwrap()
    });
    assert_eq!(running.unwrap().exit_code, 5);
    drop(engine);
    assert_eq!(processes_with(&word), 0);
    for session in [session, other] {
        // Its end is recorded a moment after the death of all that it was.
        assert!(session.wait_end(Duration::from_secs(60)));
        assert_eq!(session.state().exit_code, Some(-1));
        assert_eq!(session.poll(None).output, "begun");
        session.close().unwrap();
    }
}

#[test]
fn an_engine_can_be_dropped_while_another_goes_on() {
    let (Some(first), Some(second)) = (bench(), bench()) else { return };
    let (in_first, in_second) = (first.workspace(), second.workspace());
    let error = second.engine.run_program(&in_first, sh("true")).unwrap_err();
    assert_eq!(error.code, EngineCode::WorkspaceNotFound, "each has its own workspaces");
    drop(first);
    assert_eq!(second.sh(&in_second, "echo on"), "on\n");
}

#[test]
fn dropping_the_engine_kills_what_programs_left_in_the_sandbox_of_a_workspace() {
    let Some(Bench { engine, directory: _directory }) = bench() else { return };
    let sandbox = Some(SandboxScope::Workspace);
    let workspace = engine.create(CreateRequest { sandbox, ..CreateRequest::default() }).unwrap();
    let word = format!("2000.{}", std::process::id());
    let left = format!("setsid sleep {word} >/dev/null 2>&1 & echo left");
    assert_eq!(engine.run_program(&workspace, sh(&left)).unwrap().stdout, "left\n");
    let seen = engine.run_program(&workspace, sh("pgrep -f 'sleep 2000' | wc -l")).unwrap();
    assert!(seen.exit_code == 0 && processes_with(&word) == 1, "{seen:?}");
    drop(engine);
    assert_eq!(processes_with(&word), 0);
}

#[test]
fn a_workspace_with_persist_is_in_the_next_engine_of_the_store() {
    let Some(Bench { engine, directory }) = bench() else { return };
    let policy = WorkspacePolicy { persist: Some(true), ..WorkspacePolicy::default() };
    let workspace = engine.create_workspace("kept", policy).unwrap();
    let forgotten = engine.create_workspace("", WorkspacePolicy::default()).unwrap();
    engine.run_program(&workspace, sh("echo kept > work/file")).unwrap();
    drop(engine);
    let next = SandboxEngine::builder(directory.path().join("engine")).build().unwrap();
    let result = next.run_program(&workspace, sh("cat work/file")).unwrap();
    assert_eq!(result.stdout, "kept\n");
    let error = next.run_program(&forgotten, sh("true")).unwrap_err();
    assert_eq!(error.code, EngineCode::WorkspaceNotFound);
}
