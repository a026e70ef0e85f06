//! The secrets of the service: read at the start, and anew at each SIGHUP.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::{Builder, JoinHandle};

use signal_hook::consts::SIGHUP;
use signal_hook::{SigId, low_level};

use crate::cli::failure::Failure;
use crate::config::SecretsFile;
use crate::egress::secret::ServiceSecrets;

/// The secrets of the service, before it starts.
pub struct ServedSecrets {
    file: Option<SecretsFile>,
    private: Vec<PathBuf>,
}

/// Reads the secrets anew at each SIGHUP while it lives.
#[derive(Debug)]
pub struct SecretsReload {
    registered: SigId,
    thread: Option<JoinHandle<()>>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl ServedSecrets {
    /// Those of `file`.
    pub fn new(file: Option<SecretsFile>) -> Result<Self, Failure> {
        let refused = |fault: String| Failure::option("SECRETS_FILE", fault);
        let files = match &file {
            Some(file) => file.load(&variable).map_err(refused)?.files,
            None => Vec::new(),
        };
        let absolute = files.iter().map(std::path::absolute).collect::<Result<_, _>>();
        let private = absolute.map_err(|error| Failure::option("SECRETS_FILE", error))?;
        Ok(Self { file, private })
    }

    /// The files that hold them, which no sandbox may show.
    pub fn private(&self) -> Vec<PathBuf> {
        self.private.clone()
    }

    /// Lets `secrets` be those of the file, now and at each SIGHUP. Without a file SIGHUP ends the service,
    /// as always.
    pub fn serve(self, secrets: &ServiceSecrets) -> Result<Option<SecretsReload>, Failure> {
        let Some(file) = self.file else { return Ok(None) };
        let read = file.load(&variable).map_err(|fault| Failure::option("SECRETS_FILE", fault))?;
        secrets.replace(read.secrets);
        let secrets = secrets.clone();
        let reload = move || match file.load(&variable) {
            Ok(read) => {
                let count = read.secrets.len();
                read.warnings.iter().for_each(|warning| log::warn!("{warning}"));
                secrets.replace(read.secrets);
                log::info!("SECRETS_FILE: read {count} secrets");
            }
            Err(fault) => log::error!("SECRETS_FILE: {fault}; the secrets are as before"),
        };
        SecretsReload::on_each(reload).map(Some).map_err(Failure::Serve)
    }
}

impl SecretsReload {
    fn on_each(act: impl Fn() + Send + 'static) -> std::io::Result<Self> {
        let (mut woken, waker) = UnixStream::pair()?;
        let registered = low_level::pipe::register(SIGHUP, waker)?;
        let wait = move || {
            while woken.read_exact(&mut [0]).is_ok() {
                act();
            }
        };
        let thread = Builder::new().name("secrets".to_owned()).spawn(wait)?;
        Ok(Self { registered, thread: Some(thread) })
    }
}

impl Drop for SecretsReload {
    fn drop(&mut self) {
        // The waker is dropped with its registration, which ends the thread.
        low_level::unregister(self.registered);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
