//! The configuration of the service itself and of runs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::choices::WorkspaceChoice;
use super::parse::{
    parse_address, parse_decimal, parse_hosts, parse_optional_bytes, parse_origins,
    parse_some_bytes,
};
use super::reader::VariableReader;
use super::table;
use cofferdam_core::Limits;
use cofferdam_core::values::cpus::parse_cpus_milli;

/// Options of the command line; each overrides the environment.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--addr HOST:PORT`.
    pub addr: Option<String>,
    /// `--workspace DIR`.
    pub workspace: Option<PathBuf>,
    /// `--langs DIR`.
    pub langs: Option<PathBuf>,
    /// `--rootfs DIR`.
    pub rootfs: Option<PathBuf>,
}

/// What the HTTP server accepts from clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontConfig {
    /// Host names that clients may use without a token, besides local ones and addresses.
    pub hosts_allow: Vec<String>,
    /// How much all request bodies that are being read may hold together, bytes.
    pub bodies_bytes_max: u64,
    /// Origins whose pages may attach to sessions, besides local ones.
    pub attach_origins: Vec<String>,
}

impl FrontConfig {
    pub(super) fn read(reader: &mut VariableReader) -> Self {
        Self {
            hosts_allow: reader.value(&table::HTTP_HOSTS_ALLOW, parse_hosts),
            bodies_bytes_max: reader.value(&table::HTTP_BODIES_MAX, parse_some_bytes),
            attach_origins: reader.value(&table::HTTP_ORIGINS, parse_origins),
        }
    }
}

/// Where to listen.
pub(super) fn address(reader: &mut VariableReader, overrides: &Overrides) -> SocketAddr {
    let port = reader.value(&table::PORT, parse_decimal);
    let everywhere = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), port).into();
    let Some(addr) = &overrides.addr else { return everywhere };
    parse_address(addr).unwrap_or_else(|| {
        reader.refuse_value("--addr", "HOST:PORT", addr);
        everywhere
    })
}

/// The limits of a run.
pub(super) fn limits(reader: &mut VariableReader) -> Limits {
    Limits {
        memory_bytes_max: reader.value(&table::RUN_MEMORY_MAX, parse_some_bytes),
        processes_max: reader
            .value(&table::RUN_PIDS_MAX, |text| parse_decimal(text).filter(|count| *count > 0)),
        disk_bytes_max: reader.value(&table::RUN_DISK_MAX, parse_some_bytes),
        file_bytes_max: reader.value(&table::RUN_FILE_MAX, parse_some_bytes),
        output_bytes_max: reader.value(&table::RUN_OUTPUT_MAX, parse_optional_bytes),
        cpus_milli_max: reader.optional(&table::RUN_CPUS, |text| parse_cpus_milli(text).ok()),
        ..Limits::default()
    }
}

/// Which workspace a request runs in.
pub(super) fn workspaces(reader: &mut VariableReader, overrides: &Overrides) -> WorkspaceChoice {
    // Both are read in any case, to find every problem.
    let (single, per_language) =
        (reader.directory(&table::RUN_WORKSPACE), reader.directory(&table::LANGS_DIR));
    match (&overrides.workspace, &overrides.langs, single, per_language) {
        (Some(_), Some(langs), ..) => {
            let both = langs.display().to_string();
            reader.refuse_value("--langs", "no --workspace beside it", &both);
            WorkspaceChoice::Unset
        }
        (Some(workspace), None, ..) => WorkspaceChoice::Single(workspace.clone()),
        (None, Some(langs), ..) => WorkspaceChoice::PerLanguage(langs.clone()),
        (None, None, Some(workspace), _) => WorkspaceChoice::Single(workspace),
        (None, None, None, Some(langs)) => WorkspaceChoice::PerLanguage(langs),
        (None, None, None, None) => WorkspaceChoice::Unset,
    }
}
