//! Variables of a provider, and engines that are put together of parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam::engine::{
    CodeExecutionInput, CodeExecutionResult, CodeExecutor, EngineError, ProgramRunner,
    RunEnvProvider, RunProgramSpec, RunResult, SandboxCodeExecutor, Workspace, new_engine,
    new_env_injecting_code_executor, new_env_injecting_engine,
};

use crate::bench::{bench, sh};

fn provider() -> RunEnvProvider {
    RunEnvProvider::new(|workspace| {
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        BTreeMap::from([of("TOKEN", "secret"), of("OWN", "provider"), of("ID", &workspace.id)])
    })
}

#[test]
fn every_program_gets_the_variables_of_the_provider_unless_it_has_its_own() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let engine = new_env_injecting_engine(Arc::new(bench.engine), provider());
    let spec = sh("echo $TOKEN $OWN $ID").env("OWN", "own");
    let expected = format!("secret own {}\n", workspace.id);
    assert_eq!(engine.runner().run_program(&workspace, spec.clone()).unwrap().stdout, expected);
    let runner = engine.runner().interactive().unwrap();
    let session = runner.start_program(&workspace, spec.interactive()).unwrap();
    session.kill(std::time::Duration::from_secs(60)).unwrap();
    let log = session.log(None, None).output;
    assert!(log.is_empty() || log == expected.trim(), "{log}");
    assert_eq!(engine.describe().isolation, "sandbox");
    engine.manager().cleanup(&workspace).unwrap();
}

#[test]
fn an_executor_hands_out_an_engine_with_the_variables_or_stays_as_it_is() {
    /// An executor without an engine.
    #[derive(Debug)]
    struct Echo;
    impl CodeExecutor for Echo {
        fn execute_code(
            &self,
            input: CodeExecutionInput,
        ) -> Result<CodeExecutionResult, EngineError> {
            Ok(CodeExecutionResult { output: input.execution_id, output_files: Vec::new() })
        }
    }
    let same: Arc<dyn CodeExecutor> = Arc::new(Echo);
    let wrapped = new_env_injecting_code_executor(Arc::clone(&same), provider());
    assert!(Arc::ptr_eq(&same, &wrapped));

    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let executor = Arc::new(SandboxCodeExecutor::new(Arc::new(bench.engine)));
    let wrapped = new_env_injecting_code_executor(executor, provider());
    let engine = wrapped.engine_provider().unwrap().engine();
    let result = engine.runner().run_program(&workspace, sh("echo $TOKEN")).unwrap();
    assert_eq!(result.stdout, "secret\n");
    assert_eq!(wrapped.code_block_delimiter().end, "```");
}

/// Runs nothing.
#[derive(Debug)]
struct Refusing;

impl ProgramRunner for Refusing {
    fn run_program(&self, _: &Workspace, spec: RunProgramSpec) -> Result<RunResult, EngineError> {
        Err(EngineError::invalid("cmd", spec.cmd))
    }
}

#[test]
fn an_engine_is_put_together_of_parts() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let parts = Arc::new(bench.engine);
    let engine = new_engine(Arc::clone(&parts) as _, Arc::clone(&parts) as _, Arc::new(Refusing));
    let engine = new_env_injecting_engine(engine, provider());
    assert!(engine.runner().interactive().is_none(), "the runner starts nothing to talk with");
    let error = engine.runner().run_program(&workspace, sh("true")).unwrap_err();
    assert_eq!(error.message, "cmd: sh");
    assert_eq!(engine.describe(), Default::default());
    assert!(engine.fs().collect(&workspace, &["*".to_owned()]).is_ok());
}
