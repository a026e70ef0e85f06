//! What an environment that trials share is known by. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use super::certificates::PassedVariables;
use super::error::ProvisionError;
use super::plan::kind_word;
use crate::case::file::CaseEnvironment;
use cofferdam_core::values::digest::tagged_hash;
use cofferdam_core::{NetworkObject, RuleObject};

/// The version of the recipe: of what is hashed, and of the commands that are planned.
pub const RECIPE_TAG: &str = "provision-1";

/// All that an environment is made of.
#[derive(Debug, Clone, Copy)]
pub struct ProvisionKey<'a> {
    /// Whose it is: the name of the token, never the token.
    pub owner: &'a str,
    /// The block.
    pub environment: &'a CaseEnvironment,
    /// The digest of all that `CASE_DIR` shows.
    pub case_digest: &'a str,
    /// The digest of the source tree.
    pub source_digest: &'a str,
    /// `container.setup`.
    pub container_setup: &'a [String],
    /// The variables that the commands get.
    pub variables: &'a PassedVariables,
    /// The hosts that they reach, and the rules.
    pub network: &'a NetworkObject,
    /// The interpreter.
    pub python: &'a str,
    /// The platform: system, architecture.
    pub platform: &'a str,
    /// The root file system or the image.
    pub root: &'a str,
}

/// What is hashed, as canonical JSON: no two inputs are written alike.
#[derive(Debug, Serialize)]
struct HashedKey<'a> {
    owner: &'a str,
    environment: HashedEnvironment<'a>,
    case_digest: &'a str,
    source_digest: &'a str,
    container_setup: &'a [String],
    variables: BTreeMap<&'a str, String>,
    hosts: &'a [String],
    rules: &'a BTreeMap<String, Vec<RuleObject>>,
    secret_env: &'a BTreeMap<String, String>,
    python: &'a str,
    platform: &'a str,
    root: &'a str,
}

#[derive(Debug, Serialize)]
struct HashedEnvironment<'a> {
    kind: &'static str,
    venv: bool,
    system_site_packages: bool,
    requirements: &'a [String],
    requirement_files: Vec<String>,
    is_editable: bool,
    pip_args: &'a [String],
    commands: &'a [String],
    env: &'a BTreeMap<String, String>,
    timeout_s: f64,
    egress: Option<&'a [String]>,
    share: bool,
}

impl ProvisionKey<'_> {
    /// The digest: [`RECIPE_TAG`], a colon and the SHA-256 as 64 hexadecimal digits. Values of secrets are no part of
    /// it.
    ///
    /// # Errors
    /// Never: all of it is text and finite numbers.
    pub fn digest(&self) -> Result<String, ProvisionError> {
        let Self { container_setup, network, python, platform, root, .. } = *self;
        let hashed = HashedKey {
            owner: self.owner,
            environment: HashedEnvironment::of(self.environment),
            case_digest: self.case_digest,
            source_digest: self.source_digest,
            container_setup,
            variables: self.variables.identity(),
            hosts: &network.allow,
            rules: &network.rules,
            secret_env: &network.secret_env,
            python,
            platform,
            root,
        };
        tagged_hash(RECIPE_TAG, &hashed)
            .map_err(|error| ProvisionError::Key { reason: error.to_string() })
    }
}

impl<'a> HashedEnvironment<'a> {
    fn of(environment: &'a CaseEnvironment) -> Self {
        // Without `..`: a new field has to be hashed.
        let CaseEnvironment {
            kind,
            venv,
            system_site_packages,
            requirements,
            requirement_files,
            is_editable,
            pip_args,
            commands,
            env,
            timeout_s,
            egress,
            share,
        } = environment;
        Self {
            kind: kind_word(*kind),
            venv: *venv,
            system_site_packages: *system_site_packages,
            requirements,
            requirement_files: requirement_files
                .iter()
                .map(|file| file.display().to_string())
                .collect(),
            is_editable: *is_editable,
            pip_args,
            commands,
            env,
            timeout_s: *timeout_s,
            egress: egress.as_deref(),
            share: *share,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::case::file::EnvironmentKind;
    use crate::case::provision::plan::environment_of;
    use cofferdam_core::json::parse_object;

    fn base<'a>(
        environment: &'a CaseEnvironment,
        variables: &'a PassedVariables,
        network: &'a NetworkObject,
    ) -> ProvisionKey<'a> {
        ProvisionKey {
            owner: "o",
            environment,
            case_digest: "c",
            source_digest: "s",
            container_setup: &[],
            variables,
            network,
            python: "python3",
            platform: "linux",
            root: "r",
        }
    }

    fn passed(name: &str, value: &str) -> PassedVariables {
        PassedVariables::read([(name.to_owned(), value.to_owned())].into()).unwrap()
    }

    fn network(json: &str) -> NetworkObject {
        parse_object(json.as_bytes()).unwrap()
    }

    /// Blocks that each differ from `plain` and from each other.
    fn changed(plain: &CaseEnvironment) -> Vec<CaseEnvironment> {
        let changes: [fn(&mut CaseEnvironment); 16] = [
            |block| block.kind = EnvironmentKind::Uv,
            |block| block.venv = false,
            |block| block.system_site_packages = true,
            |block| block.requirements = vec!["a".to_owned(), "b".to_owned()],
            |block| block.requirements = vec!["a,b".to_owned()],
            |block| block.requirements = vec!["ab".to_owned()],
            |block| block.requirement_files = vec!["a".into()],
            |block| block.is_editable = true,
            |block| block.pip_args = vec!["a".to_owned()],
            |block| block.commands = vec!["a".to_owned()],
            |block| block.env = [("a".to_owned(), "b".to_owned())].into(),
            |block| block.env = [("a".to_owned(), "b=c".to_owned())].into(),
            |block| block.env = [("a=b".to_owned(), "c".to_owned())].into(),
            |block| block.timeout_s = 1.5,
            |block| block.egress = Some(Vec::new()),
            |block| block.share = false,
        ];
        let block = |change: fn(&mut CaseEnvironment)| {
            let mut block = plain.clone();
            change(&mut block);
            block
        };
        changes.map(block).into()
    }

    #[test]
    fn every_input_changes_the_key() {
        let plain = environment_of(EnvironmentKind::PipVenv);
        let (no_variables, no_network) = (PassedVariables::default(), NetworkObject::default());
        let base = base(&plain, &no_variables, &no_network);
        let place = tempfile::NamedTempFile::new().unwrap();
        let path = place.path().to_str().unwrap();
        let blocks = changed(&plain);
        let variables =
            [passed("A", "b"), passed("A", "c"), passed("Ab", ""), passed("PIP_CERT", path)];
        let networks = [
            network(r#"{"allow": ["a.example"]}"#),
            network(r#"{"rules": {"a.example": []}}"#),
            network(r#"{"rules": {"a.example": [{"methods": ["GET"]}]}}"#),
            network(r#"{"secret_env": {"A": "k"}}"#),
        ];
        let setups = [vec!["a".to_owned(), "b".to_owned()], vec!["ab".to_owned()]];
        let mut keys = vec![
            base,
            ProvisionKey { owner: "x", ..base },
            ProvisionKey { case_digest: "x", ..base },
            ProvisionKey { source_digest: "x", ..base },
            ProvisionKey { case_digest: "cs", source_digest: "", ..base },
            ProvisionKey { python: "x", ..base },
            ProvisionKey { platform: "x", ..base },
            ProvisionKey { root: "x", ..base },
        ];
        keys.extend(blocks.iter().map(|environment| ProvisionKey { environment, ..base }));
        keys.extend(variables.iter().map(|variables| ProvisionKey { variables, ..base }));
        keys.extend(networks.iter().map(|network| ProvisionKey { network, ..base }));
        keys.extend(setups.iter().map(|setup| ProvisionKey { container_setup: setup, ..base }));
        let digests: BTreeSet<String> = keys.iter().map(|key| key.digest().unwrap()).collect();
        assert_eq!(digests.len(), keys.len());
        assert_eq!(base.digest(), base.digest());
    }

    #[test]
    fn values_of_secrets_are_no_part_of_the_key() {
        let (block, variables) =
            (environment_of(EnvironmentKind::PipVenv), PassedVariables::default());
        let [first, other] = ["first-value", "other-value"].map(|value| {
            network(&format!(
                r#"{{"secrets": {{"k": {{"value": "{value}", "hosts": ["a.example"]}}}}}}"#
            ))
        });
        let digest = |network| base(&block, &variables, network).digest().unwrap();
        assert_eq!(digest(&first), digest(&other));
    }
}
