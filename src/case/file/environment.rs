//! `environment`, `container`, `setup` and `limits`: where the commands of a Cell run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::agents::hosts;
use super::block::{CaseBlock, CaseField, CaseReading};
use super::finding::CaseCode;
use super::paths::{WantedFile, case_path, relative_path};

/// The keys that a `command` environment cannot have.
const VENV_KEYS: [&str; 6] =
    ["venv", "system_site_packages", "requirements", "requirement_files", "install", "pip_args"];
const ENVIRONMENT_KEYS: [&str; 12] = [
    "kind",
    "venv",
    "system_site_packages",
    "requirements",
    "requirement_files",
    "install",
    "pip_args",
    "commands",
    "env",
    "timeout_s",
    "egress",
    "share",
];
const CONTAINER_KEYS: [&str; 8] =
    ["image", "setup", "python", "home", "caches", "harness", "backend", "env_passthrough"];
const PROVISION_SECONDS: f64 = 900.0;
const MIB: i64 = 1 << 20;

/// How the environment is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvironmentKind {
    /// A virtual environment by venv and pip.
    PipVenv,
    /// A virtual environment by uv.
    Uv,
    /// Commands alone.
    Command,
}

/// `environment`.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseEnvironment {
    /// How it is made.
    pub kind: EnvironmentKind,
    /// Whether the block does anything.
    pub venv: bool,
    /// Whether the virtual environment shows the interpreter's own packages.
    pub system_site_packages: bool,
    /// Distributions to install.
    pub requirements: Vec<String>,
    /// Files of requirements, below the directory of the Case.
    pub requirement_files: Vec<PathBuf>,
    /// Whether the source is installed (`-e .`).
    pub is_editable: bool,
    /// Arguments of each installation.
    pub pip_args: Vec<String>,
    /// Shell commands, after the installation.
    pub commands: Vec<String>,
    /// Variables of these and all later commands.
    pub env: BTreeMap<String, String>,
    /// Limit on the whole step, seconds.
    pub timeout_s: f64,
    /// The hosts that provisioning may reach; `None` for the configured indexes.
    pub egress: Option<Vec<String>>,
    /// Whether all trials share one provisioning.
    pub share: bool,
}

impl CaseEnvironment {
    /// Reads the block.
    pub fn read(field: &CaseField<'_>, reading: &mut CaseReading<'_>, is_container: bool) -> Self {
        let block = field.block(reading, &ENVIRONMENT_KEYS);
        let kinds = [
            ("pip-venv", EnvironmentKind::PipVenv),
            ("uv", EnvironmentKind::Uv),
            ("command", EnvironmentKind::Command),
        ];
        let kind = block.word(reading, "kind", &kinds, EnvironmentKind::PipVenv);
        if kind == EnvironmentKind::Command {
            refuse_venv_keys(&block, reading);
        }
        let files = block.written("requirement_files").map(|field| field.items(reading));
        let files = files.unwrap_or_default();
        let requirement_files =
            files.iter().filter_map(|file| case_path(file, reading, WantedFile::File)).collect();
        let environment = Self {
            kind,
            venv: block.flag(reading, "venv", true),
            system_site_packages: block.flag(reading, "system_site_packages", false),
            requirements: block.texts(reading, "requirements"),
            requirement_files,
            is_editable: block.word(
                reading,
                "install",
                &[("none", false), ("editable", true)],
                false,
            ),
            pip_args: block.texts(reading, "pip_args"),
            commands: block.texts(reading, "commands"),
            env: block.variables(reading, "env"),
            timeout_s: block.seconds(reading, "timeout_s", PROVISION_SECONDS),
            egress: block.written("egress").map(|field| hosts(field, reading)),
            share: block.flag(reading, "share", true),
        };
        environment.check(&block, reading, is_container);
        environment
    }

    fn check(&self, block: &CaseBlock<'_>, reading: &mut CaseReading<'_>, is_container: bool) {
        let is_command = self.kind == EnvironmentKind::Command;
        if is_command && self.commands.is_empty() && no_items(block, "commands") {
            block.missing(reading, "commands");
        }
        if let Some(venv) = block.written("venv").filter(|_| !self.venv && !is_command) {
            venv.warn(reading, CaseCode::Inert, "'venv: false' skips the whole block");
        }
        let shared = block.written("share").filter(|_| self.share && is_container);
        if let Some(share) = shared {
            share.warn(
                reading,
                CaseCode::NoEffect,
                "each Cell in a container provisions for itself",
            );
        }
    }
}

/// Whether the list is absent or empty, and not wrong in another way.
fn no_items(block: &CaseBlock<'_>, key: &str) -> bool {
    use super::node::YamlValue;
    block
        .written(key)
        .is_none_or(|field| matches!(&field.node.value, YamlValue::List(items) if items.is_empty()))
}

fn refuse_venv_keys(block: &CaseBlock<'_>, reading: &mut CaseReading<'_>) {
    for key in VENV_KEYS {
        if let Some(field) = block.written(key) {
            let message = format!("kind 'command' takes no '{key}'");
            field.error(reading, CaseCode::Conflict, message);
        }
    }
}

/// The program that runs containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerBackend {
    /// The first that is there.
    Auto,
    /// podman.
    Podman,
    /// docker.
    Docker,
}

/// `container`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseContainer {
    /// The image.
    pub image: String,
    /// Shell commands, as root, before anything else.
    pub setup: Vec<String>,
    /// The interpreter of virtual environments.
    pub python: String,
    /// The home directory.
    pub home: String,
    /// Directories below `home` that last.
    pub caches: Vec<PathBuf>,
    /// Whether the agent's effects are in the container.
    pub harness: bool,
    /// The engine.
    pub backend: ContainerBackend,
    /// Variables of ours that the container has too.
    pub env_passthrough: Vec<String>,
}

impl CaseContainer {
    /// Reads the block.
    pub fn read(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Self {
        let block = field.block(reading, &CONTAINER_KEYS);
        let caches = block.written("caches").map(|field| field.items(reading)).unwrap_or_default();
        let backends = [
            ("auto", ContainerBackend::Auto),
            ("podman", ContainerBackend::Podman),
            ("docker", ContainerBackend::Docker),
        ];
        Self {
            image: block.required_text(reading, "image"),
            setup: block.texts(reading, "setup"),
            python: block.text(reading, "python").unwrap_or_else(|| "python3".to_owned()),
            home: block.text(reading, "home").unwrap_or_else(|| "/root".to_owned()),
            caches: caches.iter().filter_map(|cache| relative_path(cache, reading)).collect(),
            harness: block.flag(reading, "harness", false),
            backend: block.word(reading, "backend", &backends, ContainerBackend::Auto),
            env_passthrough: block.texts(reading, "env_passthrough"),
        }
    }
}

/// A Python function whose body is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StubTarget {
    /// The file, in the sandbox.
    pub file: PathBuf,
    /// The function's name.
    pub function: String,
}

/// `setup`: what is done to the source before the agent sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseSetup {
    /// Functions to empty.
    pub stub: Vec<StubTarget>,
    /// Shell commands.
    pub run: Vec<String>,
    /// Limit on the whole step, seconds.
    pub timeout_s: f64,
}

impl Default for CaseSetup {
    fn default() -> Self {
        Self { stub: Vec::new(), run: Vec::new(), timeout_s: PROVISION_SECONDS }
    }
}

impl CaseSetup {
    /// Reads the block.
    pub fn read(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Self {
        let block = field.block(reading, &["stub", "run", "timeout_s"]);
        let stubs = block.written("stub").map(|field| field.items(reading)).unwrap_or_default();
        let mut stub = Vec::new();
        for field in &stubs {
            let target = field.block(reading, &["file", "function"]);
            let file = target.required(reading, "file");
            let file = file.and_then(|file| relative_path(file, reading));
            let function = target.required_text(reading, "function");
            stub.extend(file.map(|file| StubTarget { file, function }));
        }
        Self {
            stub,
            run: block.texts(reading, "run"),
            timeout_s: block.seconds(reading, "timeout_s", PROVISION_SECONDS),
        }
    }
}

/// `limits` of each command and of the patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaseLimits {
    /// The largest difference of an agent, bytes.
    pub patch_bytes: i64,
    /// Memory of a command, bytes.
    pub memory_bytes: i64,
    /// Processes of a command.
    pub processes: i64,
    /// What a command may write, bytes.
    pub disk_bytes: i64,
    /// Kept output, bytes.
    pub stdout_bytes: i64,
    /// Kept output, bytes.
    pub stderr_bytes: i64,
}

impl Default for CaseLimits {
    fn default() -> Self {
        Self {
            patch_bytes: 64 * MIB,
            memory_bytes: 2048 * MIB,
            processes: 512,
            disk_bytes: 2048 * MIB,
            stdout_bytes: MIB,
            stderr_bytes: MIB,
        }
    }
}

impl CaseLimits {
    /// Reads the block.
    pub fn read(field: &CaseField<'_>, reading: &mut CaseReading<'_>) -> Self {
        let mut limits = Self::default();
        let mut keys = [
            ("patch_bytes", &mut limits.patch_bytes),
            ("memory_bytes", &mut limits.memory_bytes),
            ("processes", &mut limits.processes),
            ("disk_bytes", &mut limits.disk_bytes),
            ("stdout_bytes", &mut limits.stdout_bytes),
            ("stderr_bytes", &mut limits.stderr_bytes),
        ];
        let block = field.block(reading, &keys.each_ref().map(|(key, _)| *key));
        for (key, value) in &mut keys {
            **value = block.whole(reading, key, 1, **value);
        }
        limits
    }
}
