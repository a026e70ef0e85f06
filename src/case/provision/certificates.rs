//! Certificates that variables name by their paths on this host: a Cell shows none of them, so that it gets copies.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::ProvisionError;
use crate::case::cell::{CellExecutor, ExecError};
use cofferdam_core::values::digest::sha256_of;

/// The longest file of certificates, bytes.
pub const CERTIFICATE_BYTES_MAX: u64 = 4 << 20;
/// Variables whose value is the path of a file with certificates.
const FILE_VARIABLES: [&str; 8] = [
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
    "npm_config_cafile",
];
/// The directory of the copies, below the environment.
const DIRECTORY: &str = ".certificates";
const MODE: u32 = 0o644;

/// What the commands of provisioning get of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PassedVariables {
    /// Variables as they are.
    plain: BTreeMap<String, String>,
    /// The contents of the files that other variables name.
    certificates: BTreeMap<String, Vec<u8>>,
}

impl PassedVariables {
    /// Reads the certificates that `selected` name.
    ///
    /// # Errors
    /// A variable names no file that can be read, or one that is too long.
    pub fn read(selected: BTreeMap<String, String>) -> Result<Self, ProvisionError> {
        let mut passed = Self::default();
        for (name, value) in selected {
            match FILE_VARIABLES.contains(&name.as_str()) {
                // For programs that is as good as no variable.
                true if value.is_empty() => {}
                true => {
                    let read = read_certificates(Path::new(&value));
                    let content = read.map_err(|error| ProvisionError::Certificates {
                        variable: name.clone(),
                        reason: format!("{value}: {error}"),
                    })?;
                    passed.certificates.insert(name, content);
                }
                false => drop(passed.plain.insert(name, value)),
            }
        }
        Ok(passed)
    }

    /// The variables as they are, but those that name files.
    pub fn plain(&self) -> &BTreeMap<String, String> {
        &self.plain
    }

    /// The variables with the paths of the copies in the environment at `env`.
    pub fn seen_in(&self, env: &Path) -> BTreeMap<String, String> {
        let mut seen = self.plain.clone();
        let copies = self.certificates.keys();
        seen.extend(copies.map(|name| (name.clone(), copy_of(env, name).display().to_string())));
        seen
    }

    /// Names and values, those of files by their contents.
    pub fn identity(&self) -> BTreeMap<&str, String> {
        let plain = self.plain.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let files = self.certificates.iter();
        plain.chain(files.map(|(name, content)| (name.as_str(), sha256_of(content)))).collect()
    }

    /// Writes the copies into the environment at `env` of `cell`.
    pub(super) fn put(&self, cell: &dyn CellExecutor, env: &Path) -> Result<(), ExecError> {
        for (name, content) in &self.certificates {
            cell.put(&copy_of(env, name).display().to_string(), content, MODE)?;
        }
        Ok(())
    }
}

fn copy_of(env: &Path, name: &str) -> PathBuf {
    env.join(DIRECTORY).join(format!("{name}.pem"))
}

fn read_certificates(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("want a file"));
    }
    let mut content = Vec::new();
    file.take(CERTIFICATE_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > CERTIFICATE_BYTES_MAX {
        return Err(io::Error::other(format!("longer than {CERTIFICATE_BYTES_MAX} bytes")));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_file_of_certificates_is_seen_as_a_copy_and_known_by_its_content() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("ca.pem");
        let path_text = path.to_str().unwrap();
        std::fs::write(&path, "first").unwrap();
        let read = || {
            PassedVariables::read(variables(&[
                ("PIP_INDEX_URL", "https://i.example"),
                ("PIP_CERT", path_text),
                ("SSL_CERT_FILE", ""),
            ]))
            .unwrap()
        };
        let passed = read();
        let wanted = variables(&[
            ("PIP_INDEX_URL", "https://i.example"),
            ("PIP_CERT", "/env/.certificates/PIP_CERT.pem"),
        ]);
        assert_eq!(passed.seen_in(Path::new("/env")), wanted);
        assert_eq!(read().identity(), passed.identity());
        std::fs::write(&path, "second").unwrap();
        assert_ne!(read().identity(), passed.identity());
    }

    #[test]
    fn what_is_no_readable_file_of_certificates_is_an_error_that_names_the_variable() {
        let place = tempfile::tempdir().unwrap();
        let long = place.path().join("long");
        File::create(&long).unwrap().set_len(CERTIFICATE_BYTES_MAX + 1).unwrap();
        for (path, words) in [
            (place.path().join("none"), "No such file"),
            (place.path().to_owned(), "want a file"),
            (long, "longer than"),
        ] {
            let named = variables(&[("PIP_CERT", path.to_str().unwrap())]);
            let error = PassedVariables::read(named).unwrap_err();
            let told = error.to_string();
            assert!(told.contains("PIP_CERT") && told.contains(words), "{told}");
            assert_eq!(error.code(), "provision.failed");
        }
    }
}
