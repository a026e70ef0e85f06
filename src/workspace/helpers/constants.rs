//! The names that programs, documents and traces share: directories, variables, spans.

/// The status of an interactive program that runs and may take more input.
pub const PROGRAM_STATUS_RUNNING: &str = "running";
/// The status of an interactive program that has ended.
pub const PROGRAM_STATUS_EXITED: &str = "exited";

/// The directory of staged skills.
pub const DIR_SKILLS: &str = "skills";
/// The directory of shared intermediate files.
pub const DIR_WORK: &str = "work";
/// The directory with a directory for each run.
pub const DIR_RUNS: &str = "runs";
/// The directory of outputs.
pub const DIR_OUT: &str = "out";
/// The file that records what was staged and collected.
pub const META_FILE_NAME: &str = "metadata.json";

/// The variable with the path of the workspace.
pub const WORKSPACE_ENV_DIR_KEY: &str = "WORKSPACE_DIR";
/// The variable with the path of [`DIR_SKILLS`].
pub const ENV_SKILLS_DIR: &str = "SKILLS_DIR";
/// The variable with the path of [`DIR_WORK`].
pub const ENV_WORK_DIR: &str = "WORK_DIR";
/// The variable with the path of [`DIR_OUT`].
pub const ENV_OUTPUT_DIR: &str = "OUTPUT_DIR";
/// The variable with the path of the run's own directory.
pub const ENV_RUN_DIR: &str = "RUN_DIR";
/// The variable with the name of the skill that a run belongs to.
pub const ENV_SKILL_NAME: &str = "SKILL_NAME";

/// The span of a workspace's creation.
pub const SPAN_WORKSPACE_CREATE: &str = "workspace.create";
/// The span of a workspace's cleanup.
pub const SPAN_WORKSPACE_CLEANUP: &str = "workspace.cleanup";
/// The span of putting files.
pub const SPAN_WORKSPACE_STAGE_FILES: &str = "workspace.stage.files";
/// The span of staging a directory.
pub const SPAN_WORKSPACE_STAGE_DIR: &str = "workspace.stage.dir";
/// The span of a program's run.
pub const SPAN_WORKSPACE_RUN: &str = "workspace.run";
/// The span of collecting files.
pub const SPAN_WORKSPACE_COLLECT: &str = "workspace.collect";
/// The span of executing code blocks.
pub const SPAN_WORKSPACE_INLINE: &str = "workspace.inline";

/// The attribute with the label of the workspace.
pub const ATTR_EXEC_ID: &str = "exec_id";
/// The attribute with a path.
pub const ATTR_PATH: &str = "path";
/// The attribute with a number of files.
pub const ATTR_COUNT: &str = "count";
/// The attribute with a number of patterns.
pub const ATTR_PATTERNS: &str = "patterns";
/// The attribute with a command.
pub const ATTR_CMD: &str = "cmd";
/// The attribute with a working directory.
pub const ATTR_CWD: &str = "cwd";
/// The attribute with an exit code.
pub const ATTR_EXIT_CODE: &str = "exit_code";
/// The attribute that tells whether a time limit ended the program.
pub const ATTR_TIMED_OUT: &str = "timed_out";
/// The attribute with a path on the host.
pub const ATTR_HOST_PATH: &str = "host_path";
/// The attribute with a destination.
pub const ATTR_TO: &str = "to";
/// The attribute that tells whether a directory was mounted instead of copied.
pub const ATTR_MOUNT_USED: &str = "mount_used";

/// The permissions of a script that an interpreter reads.
pub const DEFAULT_SCRIPT_FILE_MODE: u32 = 0o644;
/// The permissions of a file that is executed.
pub const DEFAULT_EXEC_FILE_MODE: u32 = 0o755;
/// The directory that code blocks are written to and executed in.
pub const INLINE_SOURCE_DIR: &str = "src";
