//! Errors of commands of the engine.

use serde::Serialize;
use serde_json::Value;

use crate::cli::failure::{Failure, USAGE};
use crate::cli::remote::fault::ServerFault;
use crate::cli::stdio::say;
use crate::workspace::{EngineCode, EngineError};

/// The exit code of an error that is not a usage error.
const ERROR: u8 = 1;

/// Why a command of the engine failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineFailure {
    /// The error object of the engine, and the status of HTTP that it has.
    #[error("{error}")]
    Refused {
        /// The status.
        status: u16,
        /// The object.
        error: Value,
    },
    /// The server cannot be reached, or its response is not that of an engine.
    #[error("{0}")]
    Server(String),
    /// An error that other commands have too.
    #[error(transparent)]
    Other(#[from] Failure),
}

impl From<EngineError> for EngineFailure {
    fn from(error: EngineError) -> Self {
        let status = error.code.status();
        // Does not fail: the keys are strings.
        Self::Refused { status, error: serde_json::to_value(&error).unwrap_or_default() }
    }
}

impl From<ServerFault> for EngineFailure {
    fn from(fault: ServerFault) -> Self {
        let (server, words) = match fault {
            ServerFault::Unreachable(words) => return Self::Server(words),
            ServerFault::Unexpected { words, server } => (server, words),
            ServerFault::Refused { status, body, server } => {
                let error: Value = serde_json::from_slice(&body).unwrap_or_default();
                if error.get("code").is_some_and(Value::is_string) {
                    return Self::Refused { status, error };
                }
                (server, format!("answered {status}"))
            }
        };
        Self::Server(format!(
            "--server: {server}: {words}; want a cofferdam service with the engine"
        ))
    }
}

impl EngineFailure {
    /// The failure that an error object of the engine describes.
    pub fn of_object(error: Value) -> Self {
        let code = error["code"].as_str().unwrap_or_default();
        let known = EngineCode::ALL.iter().find(|known| known.word() == code);
        match known {
            Some(known) => Self::Refused { status: known.status(), error },
            None => Self::Server(format!("the service failed: {error}")),
        }
    }

    /// An error while a file is read or sent.
    pub fn io(step: &str, error: &std::io::Error) -> Self {
        EngineError::new(EngineCode::IoFailed, format!("{step}: {error}")).into()
    }

    /// Prints the error to stderr and returns its exit code. Returns a [`Failure`] to the caller,
    /// which prints it.
    pub fn conclude(self) -> Result<u8, Failure> {
        match self {
            Self::Refused { status, error } => {
                say_error(&error);
                Ok(if matches!(status, 400 | 422) { USAGE } else { ERROR })
            }
            Self::Server(words) => {
                say(&format!("cofferdam: {words}"));
                Ok(ERROR)
            }
            Self::Other(failure) => Err(failure),
        }
    }
}

/// An error object with its keys in the order of the contract.
#[derive(Debug, Serialize)]
struct ErrorLine<'a> {
    code: &'a Value,
    message: &'a Value,
    details: &'a Value,
}

/// Prints an error object to stderr.
pub fn say_error(error: &Value) {
    let [code, message, details] = ["code", "message", "details"].map(|key| &error[key]);
    let line = serde_json::to_string(&ErrorLine { code, message, details });
    // Does not fail: the keys are strings.
    say(&line.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_request_have_the_usage_exit_code() {
        for code in EngineCode::ALL {
            let failure = EngineFailure::from(EngineError::new(*code, "words"));
            let expected = if matches!(code.status(), 400 | 422) { 2 } else { 1 };
            assert_eq!(failure.conclude().unwrap(), expected, "{}", code.word());
        }
    }

    #[test]
    fn the_error_object_of_a_server_is_passed_on_and_other_answers_are_named() {
        let refused = |status, body: &str| {
            let (body, server) = (body.as_bytes().to_vec(), "http://h".to_owned());
            EngineFailure::from(ServerFault::Refused { status, body, server })
        };
        let object = r#"{"code":"artifact.not_found","message":"m","details":{}}"#;
        let failure = refused(404, object);
        assert!(
            matches!(&failure, EngineFailure::Refused { status: 404, error } if error["code"] == "artifact.not_found")
        );
        for body in ["", "<html>", "{}", "[]", r#"{"error":"not found"}"#] {
            let failure = refused(404, body);
            assert!(failure.to_string().contains("answered 404; want a cofferdam"), "{failure}");
        }
    }
}
