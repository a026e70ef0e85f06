//! What a kernel answers.

use serde::{Deserialize, Serialize};

/// The answer to one piece of code. A hostile program may have written it: every field is checked
/// where it is used.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct KernelAnswer {
    /// The value of the last expression, in every form that it has.
    #[serde(default)]
    pub results: Vec<CodeResult>,
    /// What the code raised.
    pub error: Option<CodeFault>,
}

/// One form of a value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CodeResult {
    /// Its media type.
    pub mime_type: String,
    /// The text, of a type of text.
    pub text: Option<String>,
    /// The name of the file below `out/results`, of an image.
    pub file: Option<String>,
}

/// An exception, as its language names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeFault {
    /// Its type.
    pub name: String,
    /// Its message.
    pub value: String,
    /// Its trace, without the frames of the kernel.
    pub traceback: String,
}
