//! What Cases reach, and what their provisioning sees.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::config::network::{EgressConfig, SecretsFile, network_files, optional_network};
use crate::config::parse::{parse_allow_list, parse_names};
use crate::config::reader::{Problems, VariableReader};
use crate::config::table;
use crate::egress::AllowList;
use cofferdam_core::NetworkObject;

/// The settings of Cases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CaseConfig {
    /// Rules over what git sends to the host of a repository, and the hosts of repositories, if it names any.
    pub clone_network: NetworkObject,
    /// Rules over what provisioning sends.
    pub provision_network: NetworkObject,
    /// The files with these, absolute. They may hold secrets, so that no sandbox shows them.
    pub network_files: Vec<PathBuf>,
    /// Variables of the caller that provisioning sees.
    pub provision_env: Vec<String>,
    /// Hosts whose address need not be public.
    pub private_hosts: AllowList,
    /// What holds for programs of every kind.
    pub egress: EgressConfig,
    /// The secrets that Cases may name, if there are any.
    pub secrets: Option<SecretsFile>,
}

impl CaseConfig {
    /// Reads `environment`.
    pub fn read(environment: impl IntoIterator<Item = (OsString, OsString)>) -> (Self, Problems) {
        let mut reader = VariableReader::new(environment);
        let config = Self {
            clone_network: optional_network(&mut reader, &table::CASES_CLONE_NETWORK)
                .unwrap_or_default(),
            provision_network: optional_network(&mut reader, &table::CASES_PROVISION_NETWORK)
                .unwrap_or_default(),
            network_files: network_files(
                &reader,
                [&table::CASES_CLONE_NETWORK, &table::CASES_PROVISION_NETWORK],
            ),
            provision_env: reader.value(&table::CASES_PROVISION_ENV, parse_names),
            private_hosts: reader.value(&table::CASES_HOSTS_ALLOW, parse_allow_list),
            egress: EgressConfig::read(&mut reader),
            // Its warnings are for operators of a service.
            secrets: SecretsFile::read(&mut reader).0,
        };
        (config, reader.into_problems())
    }
}
