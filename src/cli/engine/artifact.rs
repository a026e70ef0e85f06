//! `cofferdam artifact`: saves and loads artifacts on a service.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use ureq::SendBody;

use super::failure::EngineFailure;
use super::output::{print_bytes, print_document, print_line};
use crate::cli::failure::{Failure, error_words};
use crate::cli::remote::client::{Download, ServerClient, escaped, escaped_segment};
use crate::cli::remote::server_options::ServerOptions;
use crate::workspace::helpers::parse_artifact_ref;
use crate::workspace::{EngineCode, EngineError};
use cofferdam_core::values::digest::Digest;

const EXAMPLES: &str = "\
Examples:
  cofferdam artifact save report.html out/report.html --server http://127.0.0.1:4040
  cofferdam artifact load report.html@0 >report.html
  cofferdam artifact list --session s1

Prints one line of JSON; `load` prints the bytes, whose SHA-256 is checked. An error is one line of
JSON on stderr.
Exit codes: 0; 1 no such artifact, or the service fails; 2 wrong values or usage";

/// Saves and loads artifacts on a service.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub struct ArtifactCommand {
    #[command(subcommand)]
    command: ArtifactSubcommand,
}

#[derive(Debug, Subcommand)]
enum ArtifactSubcommand {
    /// Save a file as the next version of an artifact
    Save(SaveArgs),
    /// Print a version of an artifact, the newest if none is named
    Load(LoadArgs),
    /// List artifacts, ordered by name
    List(ListArgs),
    /// List the versions of an artifact
    Versions(NameArgs),
    /// Delete an artifact with all its versions
    Rm(NameArgs),
}

#[derive(Debug, Args)]
struct SaveArgs {
    /// The artifact
    #[arg(value_name = "NAME")]
    name: String,
    /// The file; `-` for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The media type
    #[arg(long, value_name = "TYPE", default_value = "application/octet-stream")]
    mime_type: String,
    #[command(flatten)]
    target: ArtifactTarget,
}

#[derive(Debug, Args)]
struct LoadArgs {
    /// The artifact, and a version if not the newest
    #[arg(value_name = "NAME[@VERSION]")]
    name: String,
    #[command(flatten)]
    target: ArtifactTarget,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// The maximum number of artifacts [default: 100]
    #[arg(long, value_name = "N")]
    limit: Option<u32>,
    /// Continue after an earlier list, with its next_cursor
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    #[command(flatten)]
    target: ArtifactTarget,
}

#[derive(Debug, Args)]
struct NameArgs {
    /// The artifact
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    target: ArtifactTarget,
}

/// Whose artifacts are meant, and where.
#[derive(Debug, Args)]
struct ArtifactTarget {
    /// Artifacts of this application
    #[arg(long, value_name = "APP")]
    app: Option<String>,
    /// Artifacts of this user of the application
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Artifacts of this session of the user
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    #[command(flatten)]
    server: ServerOptions,
}

impl ArtifactTarget {
    /// The client of the service, and the path of `resource` with the session and `more` as query.
    fn resolve(
        self,
        resource: &str,
        more: &[(&str, Option<String>)],
    ) -> Result<(ServerClient, String), EngineFailure> {
        let Self { app, user, session, server } = self;
        let mut path = resource.to_owned();
        let session = [("app", app), ("user", user), ("session", session)];
        let params = session.iter().chain(more);
        let params = params.filter_map(|(key, value)| Some((key, value.as_ref()?)));
        for (separator, (key, value)) in ['?'].into_iter().chain(std::iter::repeat('&')).zip(params)
        {
            path.push(separator);
            path.push_str(&format!("{key}={}", escaped(value, b"")));
        }
        Ok((server.client()?, path))
    }
}

impl ArtifactCommand {
    /// Runs the command; returns the exit code of the contract.
    pub fn run(self) -> Result<u8, Failure> {
        let done = match self.command {
            ArtifactSubcommand::Save(save) => save.run(),
            ArtifactSubcommand::Load(load) => load.run(),
            ArtifactSubcommand::List(list) => list.run(),
            ArtifactSubcommand::Versions(named) => named.versions(),
            ArtifactSubcommand::Rm(named) => named.remove(),
        };
        done.map(|()| 0).or_else(EngineFailure::conclude)
    }
}

impl SaveArgs {
    fn run(self) -> Result<(), EngineFailure> {
        let (client, path) = self.target.resolve(&path_of(&self.name), &[])?;
        let saved = if self.file == Path::new("-") {
            let mut stdin = io::stdin().lock();
            client.upload(&path, &self.mime_type, SendBody::from_reader(&mut stdin))?
        } else {
            let name = self.file.display();
            let failed = |error: &io::Error| format!("{name}: {}", error_words(error));
            let file =
                File::open(&self.file).map_err(|error| Failure::option("FILE", failed(&error)))?;
            let is_file = file.metadata().is_ok_and(|file| file.is_file());
            if !is_file {
                return Err(Failure::option("FILE", format!("{name}: not a regular file")).into());
            }
            client.upload(&path, &self.mime_type, file)?
        };
        Ok(print_document(&saved)?)
    }
}

impl LoadArgs {
    fn run(self) -> Result<(), EngineFailure> {
        let (name, version) = parse_artifact_ref(&self.name)?;
        let version = [("version", version.map(|version| version.to_string()))];
        let (client, path) = self.target.resolve(&path_of(&name), &version)?;
        print_artifact(client.download_tagged(&path)?)
    }
}

impl ListArgs {
    fn run(self) -> Result<(), EngineFailure> {
        let page = [("limit", self.limit.map(|limit| limit.to_string())), ("cursor", self.cursor)];
        let (client, path) = self.target.resolve("/v1/artifacts", &page)?;
        Ok(print_document(&client.document(&path)?)?)
    }
}

impl NameArgs {
    fn versions(self) -> Result<(), EngineFailure> {
        let resource = format!("/v1/artifact-versions/{}", escaped(&self.name, b""));
        let (client, path) = self.target.resolve(&resource, &[])?;
        Ok(print_document(&client.document(&path)?)?)
    }

    fn remove(self) -> Result<(), EngineFailure> {
        let (client, path) = self.target.resolve(&path_of(&self.name), &[])?;
        client.delete(&path)?;
        Ok(print_line(&json!({}))?)
    }
}

fn path_of(name: &str) -> String {
    format!("/v1/artifacts/{}", escaped_segment(name))
}

/// Prints what is downloaded. Fails if it is not what the service announced.
fn print_artifact(download: Download) -> Result<(), EngineFailure> {
    let Download { mut contents, etag } = download;
    let mut digest = Digest::default();
    let is_whole = print_bytes(&mut contents, |piece| digest.update(piece))?;
    match etag {
        Some(etag) if is_whole && etag != digest.finish() => {
            let words = "the SHA-256 of the artifact differs from what the service announced";
            Err(EngineError::new(EngineCode::IoFailed, words).into())
        }
        _ => Ok(()),
    }
}
