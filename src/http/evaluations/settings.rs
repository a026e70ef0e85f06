//! What HTTP accepts of evaluations.

use std::time::Duration;

use crate::config::{EvaluationConfig, PublicRoutes};
use crate::egress::AllowList;

/// Bytes of a request besides the agent's code, which JSON may write with six bytes for one.
const BODY_BYTES_BESIDE: u64 = 64 << 10;
const BYTES_PER_CODE_BYTE: u64 = 6;

/// What HTTP accepts of evaluations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationHttpSettings {
    /// The bounds of requests.
    pub bounds: EvaluationRequestBounds,
    /// The longest body of a batch, bytes.
    pub batch_body_bytes_max: u64,
    /// What is answered without a token.
    pub public: PublicRoutes,
}

/// The bounds of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationRequestBounds {
    /// The longest agent, bytes.
    pub agent_code_bytes_max: u64,
    /// The longest that an agent may run.
    pub agent_timeout: Duration,
    /// What agents may be allowed to reach.
    pub agent_hosts: AllowList,
    /// The most evaluations of a batch.
    pub batch_max: u64,
}

impl EvaluationRequestBounds {
    /// The longest body of a request for one evaluation, bytes.
    pub fn body_bytes_max(&self) -> u64 {
        self.agent_code_bytes_max
            .saturating_mul(BYTES_PER_CODE_BYTE)
            .saturating_add(BODY_BYTES_BESIDE)
    }
}

impl From<&EvaluationConfig> for EvaluationHttpSettings {
    fn from(config: &EvaluationConfig) -> Self {
        Self {
            bounds: EvaluationRequestBounds {
                agent_code_bytes_max: config.agent_code_bytes_max,
                agent_timeout: config.times.agent,
                agent_hosts: config.network.hosts.clone(),
                batch_max: config.batch_max as u64,
            },
            batch_body_bytes_max: config.batch_body_bytes_max,
            public: config.public,
        }
    }
}
