//! Cofferdam: a Linux sandbox supervisor and code-execution service.
//!
//! Layers, lowest first; none imports a higher one (`tests/layers.rs` holds it):
//! `base` < `spec` < {`sandbox`, `lang`, `workspace`} < `executor` < `service` < {`http`, `cli`}.

pub mod base;
pub mod cli;
pub mod config;
pub mod executor;
#[cfg(any(test, fuzzing))]
#[path = "../fuzz/properties/mod.rs"]
pub mod fuzz_properties;
pub mod http;
pub mod lang;
pub mod sandbox;
pub mod service;
pub mod spec;
pub mod workspace;
