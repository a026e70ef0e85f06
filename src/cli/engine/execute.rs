//! `cofferdam execute`: executes code blocks without a server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;

use super::failure::EngineFailure;
use super::output::print_line;
use crate::cli::failure::{Failure, error_words};
use crate::cli::foreground::Foreground;
use crate::cli::options::sandbox_options::{PROFILE, root_source};
use crate::cli::options::value_parsers;
use crate::cli::stdio::read_input;
use crate::config::{Config, EngineConfig, Isolation, Overrides, TokenName};
use crate::executor::SandboxExecutor;
use crate::workspace::artifacts::LazyArtifacts;
use crate::workspace::execute::{ExecuteRequest, ExecutionAnswer};
use crate::workspace::files::EngineStores;
use crate::workspace::{
    EngineCode, EngineError, EngineSettings, HostTrees, LazyEngineDir, WorkspaceService,
};
use cofferdam_core::SetupFailure;
use cofferdam_core::json::parse_object;
use cofferdam_sandbox::engine::{SandboxConfig, SandboxHost, builtin_profile};

/// The label of the workspace of a stateful call that names none.
const LABEL: &str = "execute";

const EXAMPLES: &str = "\
Examples:
  cofferdam execute answer.md
  printf '```python\\nprint(6 * 7)\\n```\\n' | cofferdam execute -
  echo '{\"code_blocks\": [{\"language\": \"bash\", \"code\": \"id\"}]}' | cofferdam execute -

FILE is a text with code blocks, or the body of POST /v1/execute, which begins with {. Prints its answer as
one line of JSON. An error is one line of JSON on stderr.
Exit codes: 0, also if a block fails; 1 an error; 2 wrong input or usage";

/// Executes code blocks in sandboxes of this host, with the limits of the ENGINE_* variables.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExecuteCommand {
    /// The text or the request; `-` for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Keep variables and imports from one block of a language to the next
    #[arg(long)]
    stateful: bool,
    /// The label of the execution
    #[arg(long, value_name = "ID")]
    execution_id: Option<String>,
    /// The time of each block in milliseconds [default: 10000; 30000 with --stateful]
    #[arg(long, value_name = "N")]
    timeout_ms: Option<u64>,
    /// Set a variable; the caller's environment is not passed on
    #[arg(long, value_name = "K=V", value_parser = value_parsers::variable)]
    env: Vec<(String, String)>,
    /// The root file system of the sandboxes instead of the host's [SANDBOX_ROOTFS]
    #[arg(long, value_name = "DIR")]
    rootfs: Option<PathBuf>,
}

impl ExecuteCommand {
    /// Prints the answer.
    pub fn run(self) -> Result<u8, Failure> {
        self.execute().or_else(EngineFailure::conclude)
    }

    fn execute(mut self) -> Result<u8, EngineFailure> {
        let rootfs = self.rootfs.take();
        let overrides = Overrides { rootfs, ..Overrides::default() };
        let (config, problems) = Config::read(std::env::vars_os(), &overrides);
        let config = problems.none_or(config).map_err(Failure::from)?;
        let request = self.request(&config.engine)?;
        let foreground = Foreground::begin()?;
        let answer = execute(&config, request, &foreground)?;
        if let Some(code) = foreground.signal_code() {
            return Ok(code);
        }
        print_line(&answer)?;
        Ok(0)
    }

    fn request(self, config: &EngineConfig) -> Result<ExecuteRequest, EngineFailure> {
        let Self { file, stateful, execution_id, timeout_ms, env, .. } = self;
        let bytes = read(&file, config.maxima.input_bytes)?;
        let mut request = if bytes.trim_ascii_start().first() == Some(&b'{') {
            parse_object(&bytes).map_err(EngineError::from)?
        } else {
            let text = String::from_utf8(bytes);
            let text = text.map_err(|_| fault(&file, "not UTF-8; want a text file"))?;
            ExecuteRequest { text: Some(text), ..ExecuteRequest::default() }
        };
        request.stateful = request.stateful.or(stateful.then_some(true));
        request.execution_id = execution_id.or(request.execution_id);
        if request.is_stateful() {
            request.execution_id.get_or_insert_with(|| LABEL.to_owned());
        }
        request.timeout_ms = timeout_ms.or(request.timeout_ms);
        if !env.is_empty() {
            let own: BTreeMap<_, _> = env.into_iter().collect();
            request.env.get_or_insert_default().extend(own);
        }
        Ok(request)
    }
}

/// Executes `request` in an engine that lives for it.
fn execute(
    config: &Config,
    request: ExecuteRequest,
    foreground: &Foreground,
) -> Result<ExecutionAnswer, EngineFailure> {
    let executor = executor(config)?;
    // Opened only to save outputs: the workspace of the call is in memory.
    let engine = &config.engine;
    let directory = LazyEngineDir::new(engine.store_dir.clone(), engine.maxima.store_bytes);
    let directory = Arc::new(directory);
    let artifacts = LazyArtifacts::new(Arc::clone(&directory), engine.maxima.artifact_bytes);
    let stores = EngineStores { artifacts: Some(Arc::new(artifacts)), ..EngineStores::default() };
    let trees = HostTrees::open(Arc::new(executor), directory);
    let trees = trees.map_err(Failure::Refused)?;
    let passed = config.env_allow.iter();
    let passed = passed.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
    let base_env = passed.collect();
    let settings = EngineSettings { base_env, ..EngineSettings::from(&config.engine) };
    let service = WorkspaceService::start(settings, Box::new(trees)).map_err(Failure::Serve)?;
    let service = service.with_stores(stores);
    let call = service.begin_execution(&TokenName::default(), request)?;
    let executed = service.execute(call, Vec::new(), &foreground.watch());
    // The kernels of a stateful call.
    service.cancel_all();
    Ok(executed?.0)
}

fn executor(config: &Config) -> Result<SandboxExecutor, Failure> {
    let root = root_source(config.rootfs.as_deref()).map_err(Failure::Usage)?;
    let profile = builtin_profile(PROFILE)
        .map_err(|error| SetupFailure::from_words("profile", error.to_string()))?;
    let strict = config.isolation == Isolation::Strict;
    let settings = SandboxConfig { profile, root, private: Vec::new(), strict };
    let sandbox = SandboxHost::open(settings).map_err(Failure::Refused)?;
    let mut executor = SandboxExecutor::new(sandbox);
    executor.prepare_for(1, 0).map_err(Failure::Refused)?;
    Ok(executor)
}

fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, EngineFailure> {
    let bytes = read_input(path, bytes_max).map_err(|error| fault(path, &error_words(&error)))?;
    if bytes.len() as u64 > bytes_max {
        let words = format!("more than ENGINE_INPUT_MAX, which is {bytes_max} bytes");
        return Err(EngineError::new(EngineCode::InvalidRequest, words).into());
    }
    Ok(bytes)
}

fn fault(path: &Path, words: &str) -> Failure {
    Failure::option("FILE", format!("{}: {words}", path.display()))
}
