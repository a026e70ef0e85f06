//! Programs that are talked with.

use std::time::Duration;

use cofferdam::engine::{
    EngineCode, PROGRAM_STATUS_EXITED, PROGRAM_STATUS_RUNNING, ProgramResultProvider,
    ProgramRunner, ProgramSession, ProgramStateProvider, RunProgramSpec, SandboxSession,
};

use crate::bench::{bench, sh};

/// Longer than any answer takes.
const SOON: Duration = Duration::from_secs(60);

/// Polls until `end` is the last of what was polled; returns all of it.
#[track_caller]
fn poll_until(session: &SandboxSession, end: &str) -> String {
    let mut seen = String::new();
    while !seen.ends_with(end) {
        assert!(session.wait_output(SOON), "no {end:?} in {seen:?}");
        let poll = session.poll(None);
        if !poll.output.is_empty() && !poll.partial {
            seen.push_str(&poll.output);
            seen.push('\n');
        }
        assert!(poll.exit_code.is_none() || seen.ends_with(end), "{end:?} in {seen:?}");
    }
    seen
}

#[test]
fn a_session_is_talked_with_line_by_line() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let spec = sh("while read line; do echo \"got $line\"; done; echo end >&2; exit 4");
    let session = bench.engine.start_session(&workspace, spec.interactive()).unwrap();
    assert_eq!(session.state().status, PROGRAM_STATUS_RUNNING);
    assert_eq!(session.run_result().unwrap_err().code, EngineCode::SessionRunning);
    session.write(b"one", true).unwrap();
    assert_eq!(poll_until(&session, "got one\n"), "got one\n");
    session.write(b"two\nthree\n", false).unwrap();
    poll_until(&session, "got three\n");
    let log = session.log(Some(1), Some(1));
    assert_eq!((&*log.output, log.offset, log.next_offset), ("got two", 1, 2));
    session.write(b"", false).unwrap();
    session.session().close_stdin().unwrap();
    assert!(session.wait_end(SOON));
    let poll = session.poll(None);
    assert_eq!((poll.status, poll.exit_code), (PROGRAM_STATUS_EXITED, Some(4)));
    assert_eq!((&*poll.output, poll.offset, poll.next_offset), ("end", 3, 4));
    let result = session.run_result().unwrap();
    assert_eq!((&*result.stderr, result.exit_code), ("end\n", 4));
    assert_eq!(session.write(b"x", true).unwrap_err().code, EngineCode::SessionNotRunning);
}

#[test]
fn a_kill_asks_before_it_kills_and_returns_when_all_is_dead() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let start = |script| {
        let session = bench.engine.start_session(&workspace, sh(script).interactive()).unwrap();
        poll_until(&session, "begun\n");
        session
    };
    let polite = start("trap 'exit 9' TERM; echo begun; while :; do sleep 0.01; done");
    polite.kill(SOON).unwrap();
    assert_eq!(polite.state().exit_code, Some(9));
    let deaf = start("trap '' TERM; setsid sleep 1000 & echo begun; while :; do sleep 1; done");
    deaf.kill(Duration::from_millis(1)).unwrap();
    let result = deaf.run_result().unwrap();
    assert_eq!((result.exit_code, result.outcome), (-1, "cancelled"));
    deaf.kill(Duration::ZERO).unwrap();
}

#[test]
fn a_closed_session_is_dead_and_no_longer_counted() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let runner = bench.engine.interactive().unwrap();
    let spec = RunProgramSpec::new("sleep").args(["1000"]).interactive();
    let session = runner.start_program(&workspace, spec).unwrap();
    let (service, owner) = (bench.engine.service(), bench.engine.owner());
    assert!(service.session(owner, &workspace.id, session.id()).is_ok());
    session.close().unwrap();
    let error = service.session(owner, &workspace.id, session.id()).unwrap_err();
    assert_eq!(error.code, EngineCode::SessionNotFound);
    assert_eq!(session.state_provider().unwrap().state().exit_code, Some(-1));
    assert_eq!(session.result_provider().unwrap().run_result().unwrap().outcome, "cancelled");
    session.close().unwrap();
}

#[test]
fn a_command_that_cannot_be_executed_starts_no_session() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let spec = RunProgramSpec::new("no-such-program").on_terminal();
    let error = bench.engine.start_session(&workspace, spec).unwrap_err();
    assert_eq!(error.code, EngineCode::SpawnFailed);
}
