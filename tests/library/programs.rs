//! Programs that run to their end.

use std::time::Duration;

use cofferdam::engine::{
    EngineCode, ProgramRunner, ResourceLimits, RunProgramSpec, Workspace, WorkspaceManager,
};

use crate::bench::{bench, bench_with, end_of, sh};

#[test]
fn a_result_is_what_the_program_did() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let run = |spec| bench.engine.run_program(&workspace, spec).unwrap();
    let spec = sh("cat; echo $A $SKILL_NAME >&2; pwd; exit 3").stdin("in\n").env("A", "1");
    let spec = RunProgramSpec { cwd: "work/new".into(), skill: "s".into(), ..spec };
    assert_eq!(end_of(&run(spec)), (3, "in\n/workspace/work/new\n", "1 s\n"));
    let result = run(RunProgramSpec::new("no-such-program"));
    assert_eq!((result.exit_code, result.outcome), (-1, "not_started"));
    assert_eq!(result.error.unwrap().code, EngineCode::SpawnFailed);
    let result = run(sh("kill -KILL $$"));
    assert_eq!((result.exit_code, result.signal), (-1, Some(9)));
}

#[test]
fn the_time_of_a_program_ends_it_with_all_that_it_started() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let spec = sh("echo out; setsid sleep 1000 & sleep 1000");
    let result = bench.engine.run_program(&workspace, spec.timeout(Duration::from_secs(1)));
    let result = result.unwrap();
    assert_eq!((result.timed_out, end_of(&result)), (true, (-1, "out\n", "")));
    assert!(result.duration_ms >= 1000, "{result:?}");
}

#[test]
fn limits_are_enforced_by_the_kernel() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let limits = ResourceLimits {
        memory_mb: Some(64),
        max_pids: Some(8),
        stdout_bytes: Some(3),
        ..ResourceLimits::default()
    };
    let run = |script| {
        let spec = RunProgramSpec { limits: limits.clone(), ..sh(script) };
        bench.engine.run_program(&workspace, spec).unwrap()
    };
    let result = run("echo 12345");
    assert_eq!((&*result.stdout, result.stdout_bytes, result.stdout_truncated), ("123", 6, true));
    let result = run("exec python3 -c 'len(bytearray(300 << 20))'");
    assert_eq!(result.limit, Some("memory"), "{result:?}");
    let result = run("for i in 1 2 3 4 5 6 7 8 9; do sleep 5 & done");
    assert_ne!(result.exit_code, 0, "{result:?}");
}

#[test]
fn a_wrong_value_is_an_error_that_names_it() {
    let Some(bench) = bench_with(|builder| builder.limits(|config| config.requests.pids.max = 300))
    else {
        return;
    };
    let workspace = bench.workspace();
    let error = |spec| bench.engine.run_program(&workspace, spec).unwrap_err();
    assert_eq!(error(RunProgramSpec::new("")).details["path"], "cmd");
    let limits = ResourceLimits { max_pids: Some(301), ..ResourceLimits::default() };
    let above = error(RunProgramSpec { limits, ..sh("true") });
    assert_eq!(
        (&above.details["path"], &above.details["max"]),
        (&"limits.max_pids".into(), &300.into())
    );
    let outside = error(RunProgramSpec { cwd: "/etc".into(), ..sh("true") });
    assert_eq!(outside.code, EngineCode::PathEscape);
    let nowhere = Workspace { id: "ws_none".into(), path: "/workspace".into() };
    let error = bench.engine.run_program(&nowhere, sh("true")).unwrap_err();
    assert_eq!(error.code, EngineCode::WorkspaceNotFound);
}

#[test]
fn variables_of_the_engine_yield_to_those_of_the_program() {
    let Some(bench) = bench_with(|builder| builder.env("A", "engine").env("B", "engine")) else {
        return;
    };
    let workspace = bench.workspace();
    let result = bench.engine.run_program(&workspace, sh("echo $A $B").env("B", "own")).unwrap();
    assert_eq!(result.stdout, "engine own\n");
    bench.engine.cleanup(&workspace).unwrap();
}
