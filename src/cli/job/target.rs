//! The target of job commands: a store on this host, or a server.

use std::env;
use std::path::PathBuf;

use clap::Args;

use super::failure::JobFailure;
use super::records::Records;
use super::records::StoreRecords;
use super::remote::RemoteRecords;
use crate::cli::remote::client::{ServerClient, ServerUrl};
use crate::cli::remote::token_file::read_token;
use crate::config::{Config, Overrides, Problems};

/// The start of each configuration problem that concerns jobs; others are ignored.
const OURS: [&str; 5] = ["JOBS_", "FIRECRACKER_", "SANDBOX_ROOTFS", "ISOLATION", "--rootfs"];

/// A store, the default, or a server.
#[derive(Debug, Args)]
pub struct Target {
    /// The store of job records [JOBS_STORE_DIR, else ./agent-runner-runs]
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    store_dir: Option<PathBuf>,
    /// A service instead of a store, such as http://127.0.0.1:4040
    #[arg(long, value_name = "URL", value_parser = ServerUrl::parse)]
    server: Option<ServerUrl>,
    /// The file whose first line is the token for the server
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
}

impl Target {
    /// The records of existing jobs.
    pub fn records(self) -> Result<Box<dyn Records>, JobFailure> {
        match self.client()? {
            Some(client) => Ok(Box::new(RemoteRecords::new(client))),
            None => {
                let store_dir = self.store_dir(&config(None)?);
                Ok(Box::new(StoreRecords::open(&store_dir)?))
            }
        }
    }

    /// The client of the server, if one is named.
    pub fn client(&self) -> Result<Option<ServerClient>, JobFailure> {
        let Some(server) = &self.server else { return Ok(None) };
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        Ok(Some(ServerClient::new(server, token.as_deref())))
    }

    /// The directory of the store; the option overrides its variable.
    pub fn store_dir(&self, config: &Config) -> PathBuf {
        self.store_dir.clone().unwrap_or_else(|| config.jobs.store_dir.clone())
    }
}

/// The configuration from the environment. Reports only problems that concern jobs.
pub fn config(rootfs: Option<PathBuf>) -> Result<Config, Problems> {
    let overrides = Overrides { rootfs, ..Overrides::default() };
    let (config, mut problems) = Config::read(env::vars_os(), &overrides);
    problems.0.retain(|problem| OURS.iter().any(|ours| problem.starts_with(ours)));
    problems.none_or(config)
}
