//! Provisioning: `environment` of a Case becomes the environment of a Cell, by commands that go through its executor.
//!
//! [`steps`] plans, [`BuiltInProvisioner`] runs the plan. [`PassedVariables`] and [`ReachedHosts`] say what of ours the
//! commands get and reach. [`ProvisionKey`] is what an environment is known by, [`ProvisionStore`] keeps those that
//! trials share.

mod certificates;
mod error;
mod hosts;
mod key;
mod network;
mod plan;
mod provisioner;
mod store;
mod variables;

pub use certificates::{CERTIFICATE_BYTES_MAX, PassedVariables};
pub use error::{ProvisionError, ProvisionSubject, TAIL_CHARS_MAX, output_tail};
pub use hosts::ReachedHosts;
pub use key::{ProvisionKey, RECIPE_TAG};
pub use network::{ProvisionNetwork, read_provision_network};
pub use plan::{PlannedStep, ProvisionPlaces, StepPhase, kind_word, returned_environment, steps};
pub use provisioner::{
    BuiltInProvisioner, ProvisionRequest, ProvisionedEnvironment, Provisioner, provision_timeout,
};
pub use store::{ProvisionStore, ShareEnded, SharedProvision};
pub use variables::{names_of, selected_variables};
