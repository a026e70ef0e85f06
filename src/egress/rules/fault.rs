//! Why a network object is refused.

use cofferdam_core::SecretFault;

/// A field of a network object with a wrong value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {words}")]
pub struct NetworkFault {
    /// The path of the field below the object.
    pub path: String,
    /// What is wrong with it. Never the value of a secret.
    pub words: String,
}

impl NetworkFault {
    /// The field at `path` is wrong.
    pub fn new(path: impl Into<String>, words: impl Into<String>) -> Self {
        Self { path: path.into(), words: words.into() }
    }

    /// The secret `name` has no valid value.
    pub fn of_secret(name: &str, fault: SecretFault) -> Self {
        Self::new(format!("secrets.{name}.value"), fault.to_string())
    }
}

/// Why a network object is refused for a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkDenial {
    /// A field is wrong.
    #[error(transparent)]
    Invalid(#[from] NetworkFault),
    /// The client has no such secret.
    #[error("the secret {name:?} is not available")]
    SecretDenied {
        /// Its name.
        name: String,
    },
}
