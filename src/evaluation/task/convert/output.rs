//! The directory that a conversion writes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::evaluation::task::error::TaskError;
use crate::evaluation::task::read::host;

/// The largest file that is copied, bytes.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Files and directories that are copied together.
const ENTRIES_MAX: usize = 100_000;

/// The directory of a task that is written: empty when it begins.
#[derive(Debug)]
pub struct TaskOutput {
    root: PathBuf,
    entries: usize,
}

impl TaskOutput {
    /// The directory `root`, which is made if it is missing.
    ///
    /// # Errors
    /// [`TaskError::Host`] if it is not empty or cannot be written.
    pub fn create(root: &Path) -> Result<Self, TaskError> {
        let shown = root.display().to_string();
        fs::create_dir_all(root).map_err(|error| host("create", &shown, &error))?;
        let mut listed = fs::read_dir(root).map_err(|error| host("list", &shown, &error))?;
        match listed.next() {
            None => Ok(Self { root: root.to_owned(), entries: 0 }),
            Some(_) => Err(TaskError::Host(format!("{shown} is not empty"))),
        }
    }

    /// Makes the directory `name`.
    ///
    /// # Errors
    /// [`TaskError::Host`].
    pub fn directory(&mut self, name: &Path) -> Result<(), TaskError> {
        let made = fs::create_dir_all(self.root.join(name));
        made.map_err(|error| host("create", &name.display().to_string(), &error))
    }

    /// Writes the file `name`, which replaces one that was written before.
    ///
    /// # Errors
    /// [`TaskError::Host`].
    pub fn file(&mut self, name: &Path, contents: &[u8]) -> Result<(), TaskError> {
        let mut file = self.new_file(name, 0o644)?;
        file.write_all(contents).map_err(|error| host("write", &name.display().to_string(), &error))
    }

    /// Copies the file or directory at `from` to `to`. What is in a directory is copied into it.
    ///
    /// # Errors
    /// [`TaskError::Invalid`] naming `shown` for links, special files and too many or large files.
    pub fn copy(&mut self, from: &Path, to: &Path, shown: &str) -> Result<(), TaskError> {
        let mut pending = vec![(from.to_owned(), to.to_owned(), shown.to_owned())];
        while let Some((from, to, shown)) = pending.pop() {
            self.entries += 1;
            if self.entries > ENTRIES_MAX {
                return Err(TaskError::file(&shown, format!("more than {ENTRIES_MAX} entries")));
            }
            let status = from.symlink_metadata().map_err(|error| host("read", &shown, &error))?;
            if status.is_dir() {
                self.directory(&to)?;
                let listed = fs::read_dir(&from).map_err(|error| host("list", &shown, &error))?;
                for entry in listed {
                    let name = entry.map_err(|error| host("list", &shown, &error))?.file_name();
                    let below = format!("{shown}/{}", name.display());
                    pending.push((from.join(&name), to.join(&name), below));
                }
            } else if status.is_file() && status.len() <= FILE_BYTES_MAX {
                let mut source = File::options()
                    .read(true)
                    .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
                    .open(&from)
                    .map_err(|error| host("read", &shown, &error))?;
                let mut file = self.new_file(&to, status.permissions().mode() & 0o755 | 0o600)?;
                io::copy(&mut source, &mut file).map_err(|error| host("copy", &shown, &error))?;
            } else {
                return Err(TaskError::file(&shown, "it is a link, no regular file, or too large"));
            }
        }
        Ok(())
    }

    fn new_file(&mut self, name: &Path, mode: u32) -> Result<File, TaskError> {
        let path = self.root.join(name);
        let shown = name.display().to_string();
        if let Some(parent) = name.parent() {
            self.directory(parent)?;
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(host("replace", &shown, &error));
            }
            _ => {}
        }
        let file = File::options().write(true).create_new(true).mode(mode).open(&path);
        file.map_err(|error| host("create", &shown, &error))
    }
}

/// `text` as a scalar of YAML: the strings of JSON are strings of YAML.
pub fn yaml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The lines of a list under `key`; nothing for an empty list.
pub fn yaml_list(key: &str, indent: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items = items.iter().map(|item| format!("{indent}  - {}\n", yaml_text(item)));
    format!("{indent}{key}:\n{}", items.collect::<String>())
}
