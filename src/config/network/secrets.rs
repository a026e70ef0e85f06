//! The file of secrets that requests may name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use zeroize::Zeroizing;

use crate::config::reader::VariableReader;
use crate::config::table::{SECRETS_FILE, SECRETS_FILE_MODE};
use crate::egress::AllowList;
use crate::egress::secret::ServiceSecret;
use cofferdam_core::{SECRET_BYTES_MAX, SecretValue, is_secret_name};

/// The longest file of secrets, bytes.
const SECRETS_FILE_BYTES_MAX: u64 = 1 << 20;
/// Modes that let others read a file, and its group.
const OTHERS_READ: u32 = 0o004;
const GROUP_READS: u32 = 0o040;

/// The file of secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretsFile {
    path: PathBuf,
    /// Whether everybody on the host may read the files.
    any_mode: bool,
}

/// What a file of secrets holds.
#[derive(Debug, Default)]
pub struct ReadSecrets {
    /// The secrets by their names.
    pub secrets: BTreeMap<String, ServiceSecret>,
    /// The files that hold them.
    pub files: Vec<PathBuf>,
    /// What does not refuse the start.
    pub warnings: Vec<String>,
}

/// One table of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretTable {
    file: Option<PathBuf>,
    env: Option<String>,
    hosts: Vec<String>,
    tokens: Option<Vec<String>>,
}

impl SecretsFile {
    /// The file that the environment names, and warnings about it. A file that cannot be read is a problem.
    pub fn read(reader: &mut VariableReader) -> (Option<Self>, Vec<String>) {
        let any_mode = match reader.raw(&SECRETS_FILE_MODE) {
            None => false,
            Some(mode) if mode == "any" => true,
            Some(mode) => {
                let got = mode.to_string_lossy().into_owned();
                let variable = &SECRETS_FILE_MODE;
                reader.refuse_value(variable.name, variable.wanted, &got);
                false
            }
        };
        let Some(path) = reader.raw(&SECRETS_FILE).map(PathBuf::from) else {
            reader.refuse_without(&SECRETS_FILE, [&SECRETS_FILE_MODE]);
            return (None, Vec::new());
        };
        let file = Self { path, any_mode };
        match file.load(&|name| reader.any_text(name).map(str::to_owned)) {
            Ok(read) => (Some(file), read.warnings),
            Err(fault) => {
                reader.problem(format!("{}: {fault}", SECRETS_FILE.name));
                (None, Vec::new())
            }
        }
    }

    /// Reads the file and all that it names; `variable` finds variables of the environment.
    ///
    /// # Errors
    /// What is wrong, never a value.
    pub fn load(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<ReadSecrets, String> {
        let mut read = ReadSecrets::default();
        let text = self.open(&self.path, SECRETS_FILE_BYTES_MAX, &mut read)?;
        let tables: BTreeMap<String, SecretTable> = toml::from_str(&text)
            .map_err(|error| format!("{}: {}", self.path.display(), error.message()))?;
        for (name, table) in tables {
            let fault = |words: String| format!("{name:?}: {words}");
            if !is_secret_name(&name) {
                return Err(fault("want a name of letters, digits and _".to_owned()));
            }
            let value = match (&table.file, &table.env) {
                (Some(file), None) => {
                    let file = self.path.parent().unwrap_or(Path::new("")).join(file);
                    let mut text = self.open(&file, SECRET_BYTES_MAX as u64 + 1, &mut read)?;
                    if text.ends_with('\n') {
                        text.pop();
                    }
                    std::mem::take(&mut *text)
                }
                (None, Some(env)) => {
                    variable(env).ok_or_else(|| fault(format!("{env} is not set")))?
                }
                _ => return Err(fault("want either file or env".to_owned())),
            };
            let value = SecretValue::new(value).map_err(|error| fault(error.to_string()))?;
            if table.hosts.is_empty() {
                return Err(fault("want hosts".to_owned()));
            }
            let hosts =
                AllowList::parse(&table.hosts).map_err(|error| fault(format!("hosts: {error}")))?;
            let (value, tokens) = (Arc::new(value), table.tokens);
            read.secrets.insert(name, ServiceSecret { value, hosts, tokens });
        }
        Ok(read)
    }

    /// The text of a file that others cannot read.
    fn open(
        &self,
        path: &Path,
        bytes_max: u64,
        read: &mut ReadSecrets,
    ) -> Result<Zeroizing<String>, String> {
        let fault = |words: &str| format!("{}: {words}", path.display());
        let unread = |error: io::Error| fault(&error.to_string());
        let file = File::open(path).map_err(unread)?;
        let metadata = file.metadata().map_err(unread)?;
        if !metadata.is_file() {
            return Err(fault("not a file"));
        }
        if metadata.mode() & OTHERS_READ != 0 && !self.any_mode {
            return Err(fault("everybody on this host can read it"));
        }
        if metadata.mode() & GROUP_READS != 0 {
            read.warnings.push(format!("{}: its group can read it", path.display()));
        }
        // Of the final size at once: a text that grows leaves copies.
        let capacity = usize::try_from(metadata.len().min(bytes_max) + 1).unwrap_or_default();
        let mut text = Zeroizing::new(String::with_capacity(capacity));
        file.take(bytes_max + 1).read_to_string(&mut text).map_err(unread)?;
        if text.len() as u64 > bytes_max {
            return Err(fault("too long"));
        }
        read.files.push(path.to_owned());
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(path: &Path, text: &str, mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn variable(name: &str) -> Option<String> {
        (name == "A_KEY").then(|| "value-of-the-variable".to_owned())
    }

    #[test]
    fn a_secret_is_in_a_file_beside_or_in_a_variable() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("secrets.toml");
        let text = "[openai]\nfile = \"openai.key\"\nhosts = [\"api.openai.com\"]\ntokens = [\"ci\"]\n\
                    [other]\nenv = \"A_KEY\"\nhosts = [\"*.example:8443\"]\n";
        write(&path, text, 0o600);
        write(&place.path().join("openai.key"), "value-of-the-file\n", 0o640);
        let file = SecretsFile { path, any_mode: false };
        let read = file.load(&variable).unwrap();
        let value = |name: &str| read.secrets[name].value.expose().to_owned();
        assert_eq!(value("openai"), "value-of-the-file");
        assert_eq!(value("other"), "value-of-the-variable");
        assert_eq!(read.secrets["openai"].tokens.as_deref(), Some(&["ci".to_owned()][..]));
        assert_eq!((read.files.len(), read.warnings.len()), (2, 1));
    }

    #[test]
    fn a_file_that_is_missing_wrong_or_open_to_all_is_refused_without_its_values() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("secrets.toml");
        let key = place.path().join("key");
        let hosts = "hosts = [\"a.example\"]\n";
        for (text, mode, key_text, key_mode, fault) in [
            (format!("[a]\nfile = \"key\"\n{hosts}"), 0o644, "value-123", 0o600, "everybody"),
            (format!("[a]\nfile = \"key\"\n{hosts}"), 0o600, "value-123", 0o604, "everybody"),
            (format!("[a]\nfile = \"none\"\n{hosts}"), 0o600, "value-123", 0o600, "No such file"),
            (format!("[a]\nfile = \"key\"\n{hosts}"), 0o600, "value-1", 0o600, "8 bytes"),
            (format!("[a]\nfile = \"key\"\n{hosts}"), 0o600, "value-123\n\n", 0o600, "control"),
            (format!("[a]\nenv = \"NOT_SET\"\n{hosts}"), 0o600, "", 0o600, "NOT_SET is not set"),
            (format!("[a-b]\nenv = \"A_KEY\"\n{hosts}"), 0o600, "", 0o600, "a-b"),
            (format!("[a]\n{hosts}"), 0o600, "", 0o600, "either"),
            (format!("[a]\nvalue = \"value-123\"\n{hosts}"), 0o600, "", 0o600, "value"),
            ("[a]\nenv = \"A_KEY\"\nhosts = []\n".to_owned(), 0o600, "", 0o600, "hosts"),
            ("[a]\nenv = \"A_KEY\"\nhosts = [\"a b\"]\n".to_owned(), 0o600, "", 0o600, "hosts"),
        ] {
            write(&path, &text, mode);
            write(&key, key_text, key_mode);
            let file = SecretsFile { path: path.clone(), any_mode: false };
            let told = file.load(&variable).unwrap_err();
            assert!(told.contains(fault) && !told.contains("value-1"), "{text}: {told}");
        }
        write(&path, &format!("[a]\nfile = \"key\"\n{hosts}"), 0o644);
        write(&key, "value-123", 0o644);
        let file = SecretsFile { path, any_mode: true };
        assert!(file.load(&variable).is_ok());
    }
}
