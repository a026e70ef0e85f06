//! The program that runs an agent.

use crate::evaluation::request::AgentLanguage;
use crate::executor::{Executor, SandboxExecutor};
use cofferdam_core::SetupFailure;

/// The programs of which the first that is there runs an agent, with the words before its file.
fn programs(language: AgentLanguage) -> &'static [&'static [&'static str]] {
    match language {
        AgentLanguage::Python => &[&["python3"]],
        AgentLanguage::Javascript => &[&["node"]],
        AgentLanguage::Typescript => &[&["tsx"], &["node"]],
        AgentLanguage::Ruby => &[&["ruby"]],
        AgentLanguage::Go => &[&["go", "run"]],
        AgentLanguage::Shell => &[&["bash"]],
        AgentLanguage::Rust => &[&["rustc"]],
    }
}

/// The words that run the agent; `None` if nothing here can.
///
/// # Errors
/// The root file system cannot be searched.
pub fn agent_command(
    language: AgentLanguage,
    executor: &SandboxExecutor,
) -> Result<Option<Vec<String>>, SetupFailure> {
    let file = format!("/agent/{}", language.file_name());
    if language == AgentLanguage::Rust {
        let script = format!("rustc --edition 2021 -o /tmp/agent {file} && exec /tmp/agent");
        let found = executor.find_program("rustc")?.is_some();
        return Ok(found.then(|| vec!["bash".to_owned(), "-c".to_owned(), script]));
    }
    for words in programs(language) {
        let Some(program) = words.first() else { continue };
        if executor.find_program(program)?.is_some() {
            let words = words.iter().map(ToString::to_string);
            return Ok(Some(words.chain([file]).collect()));
        }
    }
    Ok(None)
}
