//! `cofferdam serve`: the HTTP service.

mod cases;
mod engine;
mod evaluations;
pub mod file_size_limit;
mod jobs;
mod memory;
mod secrets;
mod store_path;

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use crate::cli::doctor::examine;
use crate::cli::failure::Failure;
use crate::cli::foreground::signals::Signals;
use crate::cli::options::sandbox_options::SandboxOptions;
use crate::config::{Config, variables_help};
use crate::egress::ServiceEgress;
use crate::http::{BindError, DescriptorShortage, HttpSettings, Server, Services};
use crate::job::Jobs;
use cases::ServedCases;
use cofferdam_core::sync::counter::Counter;
use cofferdam_sandbox::engine::{SandboxHost, request_short_slices};
use engine::ServedEngine;
use evaluations::ServedEvaluations;
use file_size_limit::check_file_size;
use jobs::ServedJobs;
use memory::return_after_bursts;
use secrets::ServedSecrets;

const EXAMPLES: &str = "\
Examples:
  cofferdam serve
  cofferdam serve --addr 127.0.0.1:8080 --langs /srv/langs
  RUN_CONCURRENCY=4 RUN_MEMORY_MAX=1GiB ISOLATION=strict cofferdam serve --workspace /app

SIGTERM or SIGINT drains: no new runs; current runs have SHUTDOWN_GRACE to end; a second signal kills them.
Exit codes: 0 drained; 1 the address or the sandbox is not available; 2 configuration";

/// Serves POST /run; options override the environment.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{}", variables_help()))]
pub struct ServeCommand {
    /// The address to listen on [default: 0.0.0.0 and PORT, 4040]
    #[arg(long, value_name = "HOST:PORT")]
    addr: Option<String>,
    #[command(flatten)]
    options: SandboxOptions,
    /// The directory of job records; never visible to a run [JOBS_STORE_DIR]
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
    /// The directory of the code executor engine; never visible to a run [ENGINE_STORE_DIR]
    #[arg(long, value_name = "DIR")]
    engine_dir: Option<PathBuf>,
}

impl ServeCommand {
    /// Serves until a signal or `POST /shutdown`, then drains. `log_dropped` counts dropped log lines.
    pub fn run(self, log_dropped: Arc<Counter>) -> Result<u8, Failure> {
        request_short_slices();
        let Self { addr, options, store_dir, engine_dir } = self;
        let (config, resolved) = options.resolve(addr)?;
        config.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        resolved.require_command()?;
        let settings = HttpSettings { log_dropped, ..HttpSettings::from(&config) };
        let shortage = settings.raise_descriptors().map_err(Failure::Serve)?;
        if let Some(fatal) = shortage.as_ref().and_then(DescriptorShortage::fatal) {
            return Err(Failure::Limits(fatal));
        }
        check_file_size(&config)?;
        shortage.iter().for_each(|shortage| log::warn!("{shortage}"));
        let evaluations =
            ServedEvaluations::new(&config, store_dir.clone(), resolved.workspaces())?;
        let cases = ServedCases::new(&config, store_dir.clone(), resolved.workspaces())?;
        let jobs = ServedJobs::new(&config, store_dir, resolved.workspaces())?;
        let engine = ServedEngine::new(&config.engine, engine_dir, resolved.workspaces())?;
        let tokens_file = config.tokens_file.iter().map(std::path::absolute);
        let tokens_file = tokens_file.collect::<Result<Vec<_>, _>>();
        let tokens_file =
            tokens_file.map_err(|error| Failure::option("AUTH_TOKENS_FILE", error))?;
        let secrets = ServedSecrets::new(config.secrets.clone())?;
        let of_engine = engine.private().into_iter().collect();
        let mut private = [jobs.private(), of_engine, tokens_file, secrets.private()].concat();
        private.extend(config.evaluations.network_files.iter().cloned());
        private.extend(config.cases.all.network_files.iter().cloned());
        // Before our own sandbox opens: each trial opens one.
        let mut examined = examine().map_err(Failure::Refused)?;
        let checking =
            resolved.open(config.isolation, private.clone()).map_err(Failure::Refused)?;
        examined.add_whole_sandbox(Ok(()));
        let controls = controls(checking.executor.sandbox()).map_err(Failure::Serve)?;
        let gaps = checking.executor.sandbox().not_enforced().to_vec();
        let others = jobs.sandboxes(&config.jobs) + engine.sandboxes(&config.engine);
        let (runner, executor) = checking
            .service_runner(&config, (&examined).into(), others)
            .map_err(Failure::Refused)?;
        let artifacts = engine.artifacts(&config.engine)?;
        let stores = engine.stores(&config.engine, artifacts.as_ref(), &private)?;
        let egress = ServiceEgress::default();
        let _secrets = secrets.serve(egress.secrets())?;
        let engine = engine.start(&config, &executor, stores, &egress)?;
        let jobs = jobs.start(&config, executor, &egress)?.map(|jobs| jobs as Arc<dyn Jobs>);
        let evaluations = evaluations.start(&config, &egress, &private)?;
        let cases = cases.start(&config, &egress, &private)?;
        let services = Services {
            checks: runner,
            jobs,
            engine,
            artifacts,
            evaluations,
            cases,
            egress: Arc::clone(egress.counts()),
        };
        let server = Server::bind(config.address, services, settings)
            .map_err(|BindError { address, source }| Failure::Listen { address, source })?;
        let shutdown = server.shutdown_handle();
        let _signals = Signals::on_each(move || shutdown.request()).map_err(Failure::Serve)?;
        return_after_bursts().map_err(Failure::Serve)?;
        announce(&config, &server, &egress).map_err(Failure::Serve)?;
        gaps.iter().for_each(|gap| log::warn!("not enforced: {gap}"));
        let address = server.local_addr().map_err(Failure::Serve)?;
        log::info!("listening on {address}; enforced: {controls}");
        server.run().map_err(Failure::Serve)?;
        Ok(0)
    }
}

/// Tells who may use the service and where its metrics are. No program reaches its addresses from now on.
fn announce(config: &Config, server: &Server, egress: &ServiceEgress) -> std::io::Result<()> {
    egress.add_own_address(server.local_addr()?);
    if config.tokens.is_empty() {
        log::warn!("without AUTH_TOKEN or AUTH_TOKENS_FILE, every client may use the service");
    }
    if let Some(address) = server.metrics_addr()? {
        egress.add_own_address(address);
        log::info!("metrics at http://{address}/metrics");
    }
    Ok(())
}

/// The enforced controls in one line, as in a report.
fn controls(sandbox: &SandboxHost) -> std::io::Result<String> {
    Ok(serde_json::to_string(&sandbox.enforced())?)
}
