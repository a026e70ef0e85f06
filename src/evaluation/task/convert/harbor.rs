//! A task of Harbor as a task of ours.

use std::path::{Path, PathBuf};

use super::dockerfile::{DockerCopy, Dockerfile, parse_dockerfile};
use super::output::{TaskOutput, yaml_text};
use crate::evaluation::task::error::TaskError;
use crate::evaluation::task::fields::parse_workdir;
use crate::evaluation::task::harbor::{HARBOR, harbor_terms};
use crate::evaluation::task::read::read_text;

const TEXT_BYTES_MAX: u64 = 4 << 20;
const DOCKERFILE: &str = "environment/Dockerfile";
const COMPOSE: [&str; 4] = [
    "environment/docker-compose.yaml",
    "environment/docker-compose.yml",
    "environment/compose.yaml",
    "environment/compose.yml",
];
/// The directory of the repository's files.
const FILES: &str = "files";

/// Converts the Harbor task in `from` into the empty directory `out`.
///
/// # Errors
/// [`TaskError::Invalid`] naming the file, and the line of what cannot be kept: RUN, compose.
pub fn convert_harbor(from: &Path, out: &Path) -> Result<(), TaskError> {
    let required = |name: &str| {
        read_text(from, name, TEXT_BYTES_MAX)?.ok_or_else(|| TaskError::file(name, "it is missing"))
    };
    let description = required(HARBOR)?;
    harbor_terms(&description)?;
    let prompt = required("instruction.md")?;
    required("tests/test.sh")?;
    for compose in COMPOSE {
        if read_text(from, compose, TEXT_BYTES_MAX)?.is_some() {
            let (file, line) = (Some(compose.to_owned()), Some(1));
            let reason = "compose is not converted".to_owned();
            return Err(TaskError::Invalid { file, line, field: None, reason });
        }
    }
    let dockerfile = parse_dockerfile(DOCKERFILE, &required(DOCKERFILE)?)?;
    check_workdir(&dockerfile)?;
    let copies = placed_copies(from, &dockerfile)?;

    let mut output = TaskOutput::create(out)?;
    output.directory(Path::new(FILES))?;
    for (source, target, shown) in copies {
        output.copy(&source, &Path::new(FILES).join(target), &shown)?;
    }
    output.file(Path::new("workspace.yaml"), workspace_yaml(&dockerfile).as_bytes())?;
    output.file(Path::new("prompt.md"), prompt.as_bytes())?;
    output.copy(&from.join(HARBOR), Path::new(HARBOR), HARBOR)?;
    output.copy(&from.join("tests"), Path::new("tests"), "tests")?;
    match from.join("solution").symlink_metadata() {
        Ok(_) => output.copy(&from.join("solution"), Path::new("solution"), "solution"),
        Err(_) => Ok(()),
    }
}

fn check_workdir(dockerfile: &Dockerfile) -> Result<(), TaskError> {
    let Some(workdir) = &dockerfile.workdir else { return Ok(()) };
    parse_workdir(&workdir.to_string_lossy()).map(drop).map_err(|error| TaskError::Invalid {
        file: Some(DOCKERFILE.to_owned()),
        line: dockerfile.workdir_line,
        field: None,
        reason: format!("WORKDIR {} {error}", workdir.display()),
    })
}

fn workspace_yaml(dockerfile: &Dockerfile) -> String {
    let mut text = format!("files: {FILES}\n");
    if let Some(workdir) = &dockerfile.workdir {
        text += &format!("workdir: {}\n", yaml_text(&workdir.to_string_lossy()));
    }
    if !dockerfile.env.is_empty() {
        text += "env:\n";
    }
    for (name, value) in &dockerfile.env {
        text += &format!("  {}: {}\n", yaml_text(name), yaml_text(value));
    }
    text
}

/// Where each copied file or directory comes from, where it goes below the files, and its name for errors.
type PlacedCopy = (PathBuf, PathBuf, String);

fn placed_copies(from: &Path, dockerfile: &Dockerfile) -> Result<Vec<PlacedCopy>, TaskError> {
    let mut placed = Vec::new();
    for copy in &dockerfile.copies {
        let refuse = |reason: String| TaskError::Invalid {
            file: Some(DOCKERFILE.to_owned()),
            line: Some(copy.line),
            field: None,
            reason,
        };
        let workdir = dockerfile.workdir.as_deref();
        let below = workdir.and_then(|workdir| copy.target.strip_prefix(workdir).ok());
        let below = below.ok_or_else(|| {
            refuse(format!("COPY to {} is not below WORKDIR", copy.target.display()))
        })?;
        for source in &copy.sources {
            let host = from.join("environment").join(source);
            let status = host
                .symlink_metadata()
                .map_err(|_| refuse(format!("there is no {}", source.display())))?;
            let target = target_of(copy, below, source, status.is_dir());
            placed.push((host, target, format!("environment/{}", source.display())));
        }
    }
    Ok(placed)
}

/// A file that is copied into a directory keeps its name; of a directory, what is in it is copied.
fn target_of(copy: &DockerCopy, below: &Path, source: &Path, is_directory: bool) -> PathBuf {
    let into = !is_directory && (copy.into_directory || below.as_os_str().is_empty());
    match source.file_name().filter(|_| into) {
        Some(name) => below.join(name),
        None => below.to_owned(),
    }
}
