//! The secrets of SECRETS_FILE for a command that needs no server.

use std::path::PathBuf;

use crate::cli::failure::Failure;
use crate::config::SecretsFile;
use crate::egress::ServiceEgress;

/// What programs reach through, with the secrets of `file`; and the files that hold them, which no sandbox may
/// show.
///
/// # Errors
/// A file cannot be read.
pub fn egress_with_secrets(
    file: Option<&SecretsFile>,
) -> Result<(ServiceEgress, Vec<PathBuf>), Failure> {
    let egress = ServiceEgress::default();
    let Some(file) = file else { return Ok((egress, Vec::new())) };
    let variable = |name: &str| std::env::var(name).ok();
    let refused = |fault: String| Failure::option("SECRETS_FILE", fault);
    let read = file.load(&variable).map_err(refused)?;
    egress.secrets().replace(read.secrets);
    let absolute = read.files.iter().map(std::path::absolute).collect::<Result<_, _>>();
    Ok((egress, absolute.map_err(|error| Failure::option("SECRETS_FILE", error))?))
}
