//! Rules over requests: which key decides over a host, which rule over a request, and what is sent in place
//! of what the program wrote. Pure, but for the counts of `requests_max`.

pub(crate) mod check;
pub(crate) mod decision;
pub(crate) mod edits;
pub(crate) mod fault;
pub(crate) mod glob;
pub(crate) mod host_rules;
pub(crate) mod live;
pub(crate) mod network;
pub(crate) mod path;
pub(crate) mod query;
pub(crate) mod rule;
pub(crate) mod template;
#[cfg(test)]
mod tests;

pub use check::WithheldValues;
pub use decision::{RequestPlan, RuleDecision, RuleLimits, RuleRefusal, RuledHead};
pub use fault::{NetworkDenial, NetworkFault};
pub use live::LiveNetwork;
pub use network::{HostRoute, NetworkRules, RuledName};
