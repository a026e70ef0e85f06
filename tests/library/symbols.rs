//! Every symbol of the seed has its counterpart, with the seed's values.

use cofferdam::engine as of;

/// Names the types and traits, which are compiled.
macro_rules! types {
    ($($kind:ty),* $(,)?) => { [$(std::any::type_name::<$kind>()),*] };
}

#[test]
fn every_type_of_the_seed_is_there() {
    let types = types![
        of::Capabilities,
        of::CodeBlock,
        of::CodeBlockDelimiter,
        of::CodeExecutionInput,
        of::CodeExecutionResult,
        dyn of::CodeExecutor,
        dyn of::Engine,
        dyn of::EngineProvider,
        of::File,
        of::FileRef,
        of::InputRecord,
        of::InputSpec,
        dyn of::InteractiveProgramRunner,
        of::InteractiveProgramSpec,
        of::OutputManifest,
        of::OutputRecord,
        of::OutputSpec,
        of::ProgramLog,
        of::ProgramPoll,
        dyn of::ProgramResultProvider,
        dyn of::ProgramRunner,
        dyn of::ProgramSession,
        of::ProgramState,
        dyn of::ProgramStateProvider,
        of::PutFile,
        of::ResourceLimits,
        of::RunEnvProvider,
        of::RunProgramSpec,
        of::RunResult,
        of::SkillMeta,
        of::StageOptions,
        of::Workspace,
        dyn of::WorkspaceFs,
        dyn of::WorkspaceManager,
        of::WorkspaceMetadata,
        of::WorkspacePolicy,
        of::WorkspaceRegistry,
    ];
    assert!(types.iter().all(|name| !name.is_empty()));
}

#[test]
fn every_function_of_the_seed_is_there() {
    // Functions and methods by name: a missing one does not compile.
    let _ = (of::artifact_service_from_context, of::build_block_spec, of::dir_digest);
    let _ = (of::ensure_layout, of::is_text_mime, of::load_artifact_helper, of::load_metadata);
    let _ = (of::normalize_globs, of::parse_artifact_ref, of::save_artifact_helper);
    let _ = (of::save_metadata, of::with_artifact_service, of::with_artifact_session);
    let _ = (of::extract_code_blocks, of::result_string, of::new_engine);
    let _ = (of::new_env_injecting_engine, of::new_env_injecting_code_executor);
    let _ = (of::new_workspace_registry, of::WorkspaceRegistry::acquire);
    let _ = (<dyn of::Engine>::manager, <dyn of::Engine>::fs, <dyn of::Engine>::runner);
    let _ = (<dyn of::Engine>::describe, <dyn of::EngineProvider>::engine);
    let _ = (<dyn of::WorkspaceManager>::create_workspace, <dyn of::WorkspaceManager>::cleanup);
    let _ = (<dyn of::WorkspaceFs>::put_files, <dyn of::WorkspaceFs>::collect);
    let _ = (<dyn of::WorkspaceFs>::stage_directory, <dyn of::WorkspaceFs>::stage_inputs);
    let _ = (<dyn of::WorkspaceFs>::collect_outputs, <dyn of::ProgramRunner>::run_program);
    let _ = <dyn of::InteractiveProgramRunner>::start_program;
    let _ = (<dyn of::ProgramSession>::id, <dyn of::ProgramSession>::poll);
    let _ = (<dyn of::ProgramSession>::log, <dyn of::ProgramSession>::write);
    let _ = (<dyn of::ProgramSession>::kill, <dyn of::ProgramSession>::close);
    let _ = <dyn of::ProgramStateProvider>::state;
    let _ = <dyn of::ProgramResultProvider>::run_result;
    let _ = (<dyn of::CodeExecutor>::execute_code, <dyn of::CodeExecutor>::code_block_delimiter);
    let read: Result<of::OutputSpec, _> = serde_json::from_str(r#"{"MaxFiles": 3}"#);
    assert_eq!(read.unwrap().max_files, 3);
}

#[test]
fn every_constant_of_the_seed_has_its_value() {
    for (constant, value) in [
        (of::PROGRAM_STATUS_RUNNING, "running"),
        (of::PROGRAM_STATUS_EXITED, "exited"),
        (of::DIR_SKILLS, "skills"),
        (of::DIR_WORK, "work"),
        (of::DIR_RUNS, "runs"),
        (of::DIR_OUT, "out"),
        (of::META_FILE_NAME, "metadata.json"),
        (of::ENV_SKILLS_DIR, "SKILLS_DIR"),
        (of::ENV_WORK_DIR, "WORK_DIR"),
        (of::ENV_OUTPUT_DIR, "OUTPUT_DIR"),
        (of::ENV_RUN_DIR, "RUN_DIR"),
        (of::ENV_SKILL_NAME, "SKILL_NAME"),
        (of::WORKSPACE_ENV_DIR_KEY, "WORKSPACE_DIR"),
        (of::SPAN_WORKSPACE_CREATE, "workspace.create"),
        (of::SPAN_WORKSPACE_CLEANUP, "workspace.cleanup"),
        (of::SPAN_WORKSPACE_STAGE_FILES, "workspace.stage.files"),
        (of::SPAN_WORKSPACE_STAGE_DIR, "workspace.stage.dir"),
        (of::SPAN_WORKSPACE_RUN, "workspace.run"),
        (of::SPAN_WORKSPACE_COLLECT, "workspace.collect"),
        (of::SPAN_WORKSPACE_INLINE, "workspace.inline"),
        (of::ATTR_EXEC_ID, "exec_id"),
        (of::ATTR_PATH, "path"),
        (of::ATTR_COUNT, "count"),
        (of::ATTR_PATTERNS, "patterns"),
        (of::ATTR_CMD, "cmd"),
        (of::ATTR_CWD, "cwd"),
        (of::ATTR_EXIT_CODE, "exit_code"),
        (of::ATTR_TIMED_OUT, "timed_out"),
        (of::ATTR_HOST_PATH, "host_path"),
        (of::ATTR_TO, "to"),
        (of::ATTR_MOUNT_USED, "mount_used"),
        (of::INLINE_SOURCE_DIR, "src"),
    ] {
        assert_eq!(constant, value);
    }
    assert_eq!((of::DEFAULT_SCRIPT_FILE_MODE, of::DEFAULT_EXEC_FILE_MODE), (0o644, 0o755));
}
