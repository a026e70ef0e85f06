//! Posts a program of `tests/probes` as a solution.
//!
//! Every probe is posted as Python, the one language of all services with this contract. Its
//! module defines `probe(*args)`, which runs when the harness calls `solution`; its return value
//! comes back between two marks. Native programs are compiled here, statically, and embedded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// Enclose the value that a probe returned.
pub const MARKS: (&str, &str) = ("<<observed:", ":observed>>");

/// A solution that attacks.
#[derive(Debug, Clone)]
pub struct Probe {
    source: String,
    native: Option<PathBuf>,
    args: Value,
    timeout: String,
}

impl Probe {
    /// The module `tests/probes/<name>.py`.
    pub fn python(name: &str) -> Self {
        Self::inline(&script(&format!("{name}.py")))
    }

    /// A module given as text, which must define `probe`.
    pub fn inline(source: &str) -> Self {
        Self { source: source.to_owned(), native: None, args: json!([]), timeout: "20s".to_owned() }
    }

    /// The script `tests/probes/<name>.sh`; returns `{"code", "out", "err"}`.
    pub fn sh(name: &str) -> Self {
        let script = script(&format!("{name}.sh"));
        let mut probe = Self::python("run_program");
        probe.args = json!(["sh", "-c", script, name]);
        probe
    }

    /// The program `tests/probes/<name>.c`; returns `{"code", "out", "err"}`.
    pub fn c(name: &str) -> Self {
        let mut probe = Self::python("run_program");
        probe.native = Some(native(name));
        probe.args = json!(["/tmp/probe"]);
        probe
    }

    /// The program `tests/probes/<name>.c` in place of the harness: its exit is the
    /// run's exit and its output the run's output.
    pub fn program(name: &str) -> Self {
        Self::python_with_native("become", name)
    }

    /// A module with the program `tests/probes/<native>.c` at `/tmp/probe`.
    pub fn python_with_native(name: &str, program: &str) -> Self {
        Self { native: Some(native(program)), ..Self::python(name) }
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<Value>) -> Self {
        self.args.as_array_mut().unwrap().push(arg.into());
        self
    }

    /// Sets the timeout, which is 20 s by default.
    pub fn within(mut self, timeout: &str) -> Self {
        timeout.clone_into(&mut self.timeout);
        self
    }

    /// The body of a request that runs it.
    pub fn body(&self, slug: &str) -> Value {
        json!({
            "lang_slug": slug,
            "solution_text": self.solution(),
            "asserts": json!({ "arguments": [[]], "expected": [null] }).to_string(),
            "timeout": self.timeout,
        })
    }

    fn solution(&self) -> String {
        let Self { source, native, args, .. } = self;
        let native = native.as_deref().map(packed).unwrap_or_default();
        let args = json!(args.to_string());
        let (before, after) = MARKS;
        let prelude = script("prelude.py")
            .replace("{native}", &native)
            .replace("{args}", &args.to_string())
            .replace("{before}", before)
            .replace("{after}", after);
        format!("{prelude}\n{source}")
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/probes")
}

/// The text of `tests/probes/<file>`.
pub fn script(file: &str) -> String {
    let path = directory().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The program `tests/probes/<name>.c`, compiled once per process.
pub fn native(name: &str) -> PathBuf {
    static DONE: Once<PathBuf> = Once::new();
    DONE.get(name, || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probes");
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join(name);
        let source = directory().join(format!("{name}.c"));
        // Static: the service's root file system may lack our C library.
        let flags = ["-static", "-s", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-o"];
        let status = Command::new("cc").args(flags).arg(&program).arg(&source).status().unwrap();
        assert!(status.success(), "{} does not compile", source.display());
        program
    })
}

/// The program as compressed text, since a request may have one mebibyte.
fn packed(program: &Path) -> String {
    static DONE: Once<String> = Once::new();
    DONE.get(program.to_str().unwrap(), || {
        let script = "gzip -9 -n -c \"$1\" | base64 -w0";
        let output = Command::new("sh").args(["-c", script, "pack"]).arg(program).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    })
}

/// A cache of values by name.
struct Once<T>(Mutex<BTreeMap<String, T>>);

impl<T: Clone> Once<T> {
    const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn get(&self, name: &str, make: impl FnOnce() -> T) -> T {
        let mut done = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = done.get(name) {
            return made.clone();
        }
        let made = make();
        done.insert(name.to_owned(), made.clone());
        made
    }
}
