//! Where jobs are: in a store of this host, or with a server.

use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;

use super::client::{ServerClient, ServerUrl};
use super::failure::JobFailure;
use super::records::Records;
use super::records::StoreRecords;
use super::remote::RemoteRecords;
use crate::cli::failure::{Failure, error_words};
use crate::cli::stdio::say;
use crate::config::{Config, Overrides, Problems};

/// The longest line that can be a token, bytes.
const TOKEN_BYTES_MAX: u64 = 4096;
/// Who else may read a token's file.
const OTHERS: u32 = 0o077;
/// What the configuration has of ours: problems with the rest are nobody's here.
const OURS: [&str; 5] = ["JOBS_", "FIRECRACKER_", "SANDBOX_ROOTFS", "ISOLATION", "--rootfs"];

/// A store, which is the default, or a server.
#[derive(Debug, Args)]
pub struct Target {
    /// The store of records [JOBS_STORE_DIR, else ./agent-runner-runs]
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    store_dir: Option<PathBuf>,
    /// A service instead of a store, as http://127.0.0.1:4040
    #[arg(long, value_name = "URL", value_parser = ServerUrl::parse)]
    server: Option<ServerUrl>,
    /// The file whose first line is the token that the server wants
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
}

impl Target {
    /// What is asked of jobs that are there already.
    pub fn records(self) -> Result<Box<dyn Records>, JobFailure> {
        match self.client()? {
            Some(client) => Ok(Box::new(RemoteRecords::new(client))),
            None => {
                let store_dir = self.store_dir(&config(None)?);
                Ok(Box::new(StoreRecords::open(&store_dir)?))
            }
        }
    }

    /// What asks the server, where one is named.
    pub fn client(&self) -> Result<Option<ServerClient>, JobFailure> {
        let Some(server) = &self.server else { return Ok(None) };
        let token = self.token_file.as_deref().map(read_token).transpose()?;
        Ok(Some(ServerClient::new(server, token.as_deref())))
    }

    /// The store's directory: the option beats its variable.
    pub fn store_dir(&self, config: &Config) -> PathBuf {
        self.store_dir.clone().unwrap_or_else(|| config.jobs.store_dir.clone())
    }
}

/// The configuration of the environment, of which only what jobs need has to be in order.
pub fn config(rootfs: Option<PathBuf>) -> Result<Config, Problems> {
    let overrides = Overrides { rootfs, ..Overrides::default() };
    let (config, mut problems) = Config::read(env::vars_os(), &overrides);
    problems.0.retain(|problem| OURS.iter().any(|ours| problem.starts_with(ours)));
    problems.none_or(config)
}

/// The token in `path`; says aloud when others can read it too.
fn read_token(path: &Path) -> Result<String, JobFailure> {
    let fault =
        |words: &str| Failure::option("--token-file", format!("{}: {words}", path.display()));
    let open = || {
        let file = File::open(path)?;
        Ok((file.metadata()?.permissions().mode(), file))
    };
    let (mode, file) = open().map_err(|error: std::io::Error| fault(&error_words(&error)))?;
    if mode & OTHERS != 0 {
        let path = path.display();
        say(&format!("cofferdam: --token-file: {path}: others can read it; chmod 600 {path}"));
    }
    let mut line = String::new();
    BufReader::new(file.take(TOKEN_BYTES_MAX))
        .read_line(&mut line)
        .map_err(|error| fault(&error_words(&error)))?;
    let token = line.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(fault("no token in its first line; want letters, digits and signs").into());
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use tempfile::tempdir;

    use super::*;

    #[test]
    fn a_token_is_the_first_line_of_its_file_and_never_shown() {
        let place = tempdir().unwrap();
        let path = place.path().join("token");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for (text, token) in [("secret\n", Some("secret")), ("  a.b-c \nrest", Some("a.b-c"))] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_token(&path).ok().as_deref(), token, "{text:?}");
        }
        for text in ["", "\nsecret", "two words", "é", "secret\0", &"x".repeat(9000)] {
            std::fs::write(&path, text).unwrap();
            let told = read_token(&path).map(|token| token.len());
            match told {
                Ok(length) => assert!(length <= 4096, "{length}"),
                Err(fault) => assert!(!fault.to_string().contains("secret"), "{fault}"),
            }
        }
    }
}
