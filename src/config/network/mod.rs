//! What programs may reach.

mod object_file;
mod secrets;

use std::ffi::OsString;
use std::path::Path;

use crate::config::parse::{parse_allow_list, parse_some_bytes, parse_switch};
use crate::config::reader::{Problems, VariableReader};
use crate::config::table::{self, Variable};
use crate::egress::{AllowList, EgressTerms, ServiceEgress, UpstreamRoots};

pub use self::object_file::{network_files, optional_network, read_network_object};
pub use self::secrets::SecretsFile;

/// What programs of one kind may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkConfig {
    /// Hosts that requests may name.
    pub hosts: AllowList,
    /// Those of them whose address need not be public.
    pub private_hosts: AllowList,
    /// What holds for programs of every kind.
    pub shared: EgressConfig,
}

/// What holds for what programs of every kind may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressConfig {
    /// Bytes that a job, or a workspace while it is live, may send and receive together.
    pub bytes_max: u64,
    /// What hosts with rules are verified by.
    pub roots: UpstreamRoots,
    /// Whether records have the paths of requests.
    pub log_paths: bool,
}

impl EgressConfig {
    pub fn read(reader: &mut VariableReader) -> Self {
        let file = reader.optional(&table::EGRESS_CA_FILE, |text| {
            let roots = UpstreamRoots::default();
            let added = roots.add_file(Path::new(text));
            added.inspect_err(|error| log::error!("EGRESS_CA_FILE: {error}")).ok()?;
            Some(roots)
        });
        Self {
            bytes_max: reader.value(&table::EGRESS_BYTES_MAX, parse_some_bytes),
            roots: file.unwrap_or_default(),
            log_paths: reader.value(&table::EGRESS_LOG_PATHS, parse_switch),
        }
    }
}

/// How what commands of `exec` reach is served, as `environment` says.
pub fn exec_terms(
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> (EgressTerms, Problems) {
    let mut reader = VariableReader::new(environment);
    let config = NetworkConfig {
        hosts: AllowList::default(),
        private_hosts: reader.value(&table::EXEC_HOSTS_ALLOW, parse_allow_list),
        shared: EgressConfig::read(&mut reader),
    };
    (config.terms(&ServiceEgress::default()), reader.into_problems())
}

impl NetworkConfig {
    /// Reads the lists of hosts from a pair of variables.
    pub fn read(
        reader: &mut VariableReader,
        [hosts, private_hosts]: [&Variable; 2],
        shared: &EgressConfig,
    ) -> Self {
        Self {
            hosts: reader.value(hosts, parse_allow_list),
            private_hosts: reader.value(private_hosts, parse_allow_list),
            shared: shared.clone(),
        }
    }

    /// How it is served by `service`.
    pub fn terms(&self, service: &ServiceEgress) -> EgressTerms {
        EgressTerms {
            private_hosts: self.private_hosts.clone(),
            service: service.clone(),
            bytes_max: self.shared.bytes_max,
            roots: self.shared.roots.clone(),
            log_paths: self.shared.log_paths,
        }
    }
}
