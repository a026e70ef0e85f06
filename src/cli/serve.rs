//! `cofferdam serve`: the HTTP service.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::boxes::Places;
use super::doctor::examine;
use super::failure::Failure;
use super::file_size_limit::check_file_size;
use super::memory::return_after_bursts;
use super::served_jobs::ServedJobs;
use super::signals::Signals;
use crate::http::{HttpSettings, NotBound, Server, Shortage};
use crate::job::Jobs;
use cofferdam_core::sync::counter::Counter;
use cofferdam_sandbox::{Sandbox, request_short_slices};

const EXAMPLES: &str = "\
Examples:
  cofferdam serve
  cofferdam serve --addr 127.0.0.1:8080 --langs /srv/langs
  RUN_CONCURRENCY=4 RUN_MEMORY_MAX=1GiB ISOLATION=strict cofferdam serve --workspace /app

SIGTERM or SIGINT drains: no new runs, the live ones have SHUTDOWN_GRACE to end; a second one kills them.
Exit codes: 0 drained; 1 the address or a sandbox cannot be had; 2 configuration";

/// Serves POST /run, configured by the environment; options beat it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    /// Where to listen [default: 0.0.0.0 and PORT, 4040]
    #[arg(long, value_name = "HOST:PORT")]
    addr: Option<String>,
    #[command(flatten)]
    places: Places,
    /// Where records of jobs are kept; never shown to a run [JOBS_STORE_DIR]
    #[arg(long, value_name = "DIR")]
    store_dir: Option<PathBuf>,
}

impl Serve {
    /// Serves until a signal or `POST /shutdown`, and until the drain after it is over.
    /// `log_dropped` is how many lines of the log were dropped.
    pub fn run(self, log_dropped: Arc<Counter>) -> Result<u8, Failure> {
        request_short_slices();
        let Self { addr, places, store_dir } = self;
        let (config, found) = places.look(addr)?;
        config.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        found.has_command()?;
        let settings = HttpSettings { log_dropped, ..HttpSettings::from(&config) };
        let shortage = settings.raise_descriptors().map_err(Failure::Serve)?;
        if let Some(fatal) = shortage.as_ref().and_then(Shortage::refusal) {
            return Err(Failure::Limits(fatal));
        }
        check_file_size(&config)?;
        shortage.iter().for_each(|shortage| log::warn!("{shortage}"));
        let jobs = ServedJobs::look(&config, store_dir, found.workspaces())?;
        let tokens_file = config.tokens_file.iter().map(std::path::absolute);
        let tokens_file = tokens_file.collect::<Result<Vec<_>, _>>();
        let tokens_file =
            tokens_file.map_err(|error| Failure::option("AUTH_TOKENS_FILE", error))?;
        let private = [jobs.private(), tokens_file].concat();
        // Before there is a sandbox of ours: the trials have one each.
        let mut examined = examine().map_err(Failure::Refused)?;
        let checking = found.open(config.isolation, private).map_err(Failure::Refused)?;
        examined.add_whole_box(Ok(()));
        let controls = controls(checking.executor.sandbox()).map_err(Failure::Serve)?;
        let gaps = checking.executor.sandbox().not_enforced().to_vec();
        let boxes_of_jobs = jobs.boxes(&config.jobs);
        let (runner, executor) = checking
            .runner_of_many(&config, (&examined).into(), boxes_of_jobs)
            .map_err(Failure::Refused)?;
        let jobs = jobs.start(&config, executor)?.map(|jobs| jobs as Arc<dyn Jobs>);
        let server = Server::bind(config.address, runner, jobs, settings)
            .map_err(|NotBound { address, source }| Failure::Listen { address, source })?;
        let shutdown = server.shutdown_handle();
        let _signals = Signals::on_each(move || shutdown.request()).map_err(Failure::Serve)?;
        return_after_bursts().map_err(Failure::Serve)?;
        let address = server.local_addr().map_err(Failure::Serve)?;
        gaps.iter().for_each(|gap| log::warn!("not enforced: {gap}"));
        if let Some(address) = server.metrics_addr().map_err(Failure::Serve)? {
            log::info!("metrics at http://{address}/metrics");
        }
        log::info!("listening on {address}; enforced: {controls}");
        server.run().map_err(Failure::Serve)?;
        Ok(0)
    }
}

/// The enforced controls in one line, in the words of a report.
fn controls(sandbox: &Sandbox) -> std::io::Result<String> {
    Ok(serde_json::to_string(&sandbox.enforced())?)
}
