//! The target of job commands: a store on this host, or a server.

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

/// The longest token, bytes.
const TOKEN_BYTES_MAX: u64 = 4096;
/// The permission bits of all other users.
const OTHERS: u32 = 0o077;
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

/// Reads the token in `path`; warns if other users can read the file.
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
        return Err(fault(
            "no token in its first line; want printable ASCII characters without spaces",
        )
        .into());
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
        let directory = tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for (text, token) in [("secret\n", Some("secret")), ("  a.b-c \nrest", Some("a.b-c"))] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_token(&path).ok().as_deref(), token, "{text:?}");
        }
        for text in ["", "\nsecret", "two words", "é", "secret\0", &"x".repeat(9000)] {
            std::fs::write(&path, text).unwrap();
            let token = read_token(&path).map(|token| token.len());
            match token {
                Ok(length) => assert!(length <= 4096, "{length}"),
                Err(fault) => assert!(!fault.to_string().contains("secret"), "{fault}"),
            }
        }
    }
}
