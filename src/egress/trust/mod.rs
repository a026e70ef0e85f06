//! What makes programs in a sandbox trust the proxy: an authority for one sandbox alone, and the files and
//! variables by which programs find its root.

mod authority;
mod bundles;
mod certificates;
mod ciphers;
mod key_store;
mod sandbox_trust;
mod shown_files;
#[cfg(test)]
mod tests;

pub use bundles::{trust_environment, trust_store_option};
pub use ciphers::fast_provider;
pub use sandbox_trust::SandboxTrust;
