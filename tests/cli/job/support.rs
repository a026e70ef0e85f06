//! A directory with a workspace and a store, and requests for jobs on them.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Call, Done, cofferdam};

pub struct JobDirectory(TempDir);

impl JobDirectory {
    /// Creates a directory with these files in its workspace.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.workspace()).unwrap();
        for (name, text) in files {
            fs::write(place.workspace().join(name), text).unwrap();
        }
        place
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    pub fn workspace(&self) -> PathBuf {
        self.0.path().join("workspace")
    }

    pub fn store(&self) -> PathBuf {
        self.0.path().join("store")
    }

    /// A request for `argv`, whose first word is an allowed command.
    pub fn request(&self, argv: &[&str]) -> Value {
        json!({
            "workspace": {"source": "local_path", "path": self.workspace()},
            "command": {"argv": argv},
            "policy": {"allowed_commands": [argv[0]]},
        })
    }

    /// A request for a shell script.
    pub fn script(&self, script: &str) -> Value {
        let mut request = self.request(&["sh", "-c", script]);
        request["policy"]["allow_shell"] = json!(true);
        request
    }

    /// `cofferdam job` on the store, with `words` split at spaces.
    pub fn job(&self, words: &str) -> Call {
        cofferdam("job").words(words).arg("--store-dir").arg(self.store())
    }

    /// `job run` with `request` on stdin.
    pub fn run(&self, request: &Value) -> Call {
        self.job("run -").fed(request.to_string())
    }

    /// `job run` with `request` in a file, for calls that are spawned.
    pub fn run_file(&self, request: &Value) -> Call {
        let path = self.0.path().join("request.json");
        fs::write(&path, request.to_string()).unwrap();
        self.job("run").arg(path)
    }
}

impl Done {
    /// The JSON on stdout, which must be one line.
    #[track_caller]
    pub fn json(&self) -> Value {
        let text = self.stdout();
        self.holds(text.ends_with('\n') && text.lines().count() == 1, "one line of JSON");
        serde_json::from_str(&text).unwrap()
    }

    /// The JSON error on stderr, which must be one line.
    #[track_caller]
    pub fn error(&self) -> Value {
        let text = self.stderr();
        self.holds(text.ends_with('\n') && text.lines().count() == 1, "one line on stderr");
        serde_json::from_str(&text).unwrap()
    }
}
