//! Which service a command is a client of.

use std::env;
use std::path::PathBuf;

use clap::Args;

use super::client::{ServerClient, ServerUrl};
use super::token_file::read_token;
use crate::cli::failure::Failure;

/// The variable with the URL of the service.
const SERVER_VARIABLE: &str = "COFFERDAM_SERVER";

/// The service, and the token for it.
#[derive(Debug, Args)]
pub struct ServerOptions {
    /// The service, such as http://127.0.0.1:4040 [COFFERDAM_SERVER]
    #[arg(long, value_name = "URL", value_parser = ServerUrl::parse)]
    server: Option<ServerUrl>,
    /// The file whose first line is the token for the service
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl ServerOptions {
    /// The client of the service.
    ///
    /// # Errors
    /// No service is named, or its token cannot be read.
    pub fn client(self) -> Result<ServerClient, Failure> {
        let server = match (self.server, env::var_os(SERVER_VARIABLE)) {
            (Some(server), _) => server,
            (None, Some(url)) => ServerUrl::parse(&url.to_string_lossy())
                .map_err(|fault| Failure::option(SERVER_VARIABLE, fault))?,
            (None, None) => {
                let words = format!("want the URL of a service, here or in {SERVER_VARIABLE}");
                return Err(Failure::option("--server", words));
            }
        };
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        Ok(ServerClient::new(&server, token.as_deref()))
    }
}
