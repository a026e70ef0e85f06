//! Egress: what leaves a sandbox, by an allow-list.
//!
//! A sandbox has a loopback and nothing else. [`EgressProxy`] serves a forward proxy on a socket that was
//! made inside of its network namespace, and connects from outside. [`AllowList`] and [`EgressPolicy`]
//! decide over each request, without effects: first over the host and port that it names, then over the
//! address that the name was resolved to. The proxy connects to that address and to no other.
//! [`EgressLog`] holds a record of each request.

mod client_hello;
pub(crate) mod counts;
mod environment;
mod grant;
pub(crate) mod hosts;
pub(crate) mod log;
pub(crate) mod policy;
pub(crate) mod proxy;
mod resolver;
mod roots;
pub mod rules;
pub mod secret;
mod trust;

pub use cofferdam_core::EGRESS_PORT;
pub use cofferdam_core::egress::{EgressDecision, EgressReason, EgressRecord};
pub use counts::{EgressCount, EgressCounts};
pub use environment::{proxy_environment, proxy_files};
pub use grant::{EgressGrant, EgressTerms, SandboxNetwork, ServiceEgress};
pub use hosts::allow_list::{AllowList, EgressEntryError};
pub use log::{EGRESS_RECORDS_MAX, EgressDropped, EgressLog};
pub use policy::EgressPolicy;
pub use proxy::EgressProxy;
pub use roots::UpstreamRoots;
