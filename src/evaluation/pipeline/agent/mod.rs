//! The program that runs an agent.

mod typescript;

use typescript::NodeVersions;

use crate::evaluation::bounds::PhaseBounds;
use crate::evaluation::request::{AgentLanguage, EvaluationRequest};
use crate::evaluation::trees::EvaluationRoot;
use crate::executor::Executor;
use cofferdam_core::SetupFailure;

/// Finds the programs that run agents. One service has one.
#[derive(Debug)]
pub struct AgentPrograms {
    node: NodeVersions,
    /// What a trial may use.
    bounds: PhaseBounds,
}

/// The program that runs an agent of a language besides TypeScript, with the words before its file.
fn program(language: AgentLanguage) -> &'static [&'static str] {
    match language {
        AgentLanguage::Python => &["python3"],
        AgentLanguage::Javascript => &["node"],
        AgentLanguage::Typescript => &["tsx"],
        AgentLanguage::Ruby => &["ruby"],
        AgentLanguage::Go => &["go", "run"],
        AgentLanguage::Shell => &["bash"],
        AgentLanguage::Rust => &["rustc"],
    }
}

impl AgentPrograms {
    /// Tries programs within `bounds`.
    pub fn new(bounds: PhaseBounds) -> Self {
        Self { node: NodeVersions::default(), bounds }
    }

    /// The words that run an agent in `language` for `request`; `None` if nothing here can.
    ///
    /// # Errors
    /// The root file system cannot be searched, or its node cannot be tried.
    pub fn command(
        &self,
        language: AgentLanguage,
        root: &EvaluationRoot,
        request: &EvaluationRequest,
    ) -> Result<Option<Vec<String>>, SetupFailure> {
        let file = format!("/agent/{}", language.file_name());
        let words = program(language);
        let found = match words.first() {
            Some(name) => root.trees.executor().find_program(name)?.is_some(),
            None => false,
        };
        Ok(match language {
            AgentLanguage::Rust => {
                let script =
                    format!("rustc --edition 2021 -o /tmp/agent {file} && exec /tmp/agent");
                found.then(|| vec!["bash".to_owned(), "-c".to_owned(), script])
            }
            AgentLanguage::Typescript if !found => {
                return self.typescript(&file, root, !request.agent_install.is_empty());
            }
            _ => found.then(|| words.iter().map(ToString::to_string).chain([file]).collect()),
        })
    }

    /// tsx if something that is installed has brought it, else node.
    fn typescript(
        &self,
        file: &str,
        root: &EvaluationRoot,
        may_bring_tsx: bool,
    ) -> Result<Option<Vec<String>>, SetupFailure> {
        let options = self.node.typescript_options(root, self.bounds)?;
        if options.is_none() && !may_bring_tsx {
            return Ok(None);
        }
        let node = [&["node"], options.unwrap_or_default()].concat().join(" ");
        let script = format!("command -v tsx >/dev/null && exec tsx {file}; exec {node} {file}");
        Ok(Some(vec!["bash".to_owned(), "-c".to_owned(), script]))
    }
}
