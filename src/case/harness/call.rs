//! What a harness is told: the task, the model, how long it may take and what it may reach.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::end::{HarnessEnd, HarnessError};
use super::trace::HarnessTrace;
use crate::case::cell::{CellExecutor, ExecError, ExecRequest, ExecResult, StepAccess};
use crate::case::file::CaseTask;
use crate::egress::EgressGrant;
use crate::evaluation::cache::is_raised;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// The longest instruction file, bytes.
const INSTRUCTION_BYTES_MAX: u64 = 1 << 20;

/// Lets an agent work in a Cell.
pub trait Harness: Send + Sync + fmt::Debug {
    /// Works until the agent has ended or its time is over. All that reaches the files of the Cell goes through
    /// `cell`. How an agent ends is never an error: one that ends badly or late is graded all the same.
    ///
    /// # Errors
    /// What the agent has no part in kept it from working to its end.
    fn work(
        &self,
        cell: &dyn CellExecutor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError>;
}

impl<H: Harness + ?Sized> Harness for Arc<H> {
    fn work(
        &self,
        cell: &dyn CellExecutor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError> {
        (**self).work(cell, call)
    }
}

/// One call of a harness.
#[derive(Debug)]
pub struct HarnessCall<'a> {
    /// What the agent is told.
    pub prompt: &'a HarnessPrompt,
    /// The model, as the matrix names it.
    pub model: &'a str,
    /// The variables of provisioning, by which those of every command differ.
    pub env: &'a BTreeMap<String, Option<String>>,
    /// When the whole step has to be over.
    pub deadline: Deadline,
    /// Ends it early. The Cell's own token ends its commands.
    pub cancel: &'a CancelToken,
    /// What the agent's programs may reach; nothing without it.
    pub egress: Option<&'a EgressGrant>,
    /// Where events go, the lines of `trace.jsonl`.
    pub trace: &'a HarnessTrace,
}

/// What an agent is told, in parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HarnessPrompt {
    /// What comes first, if anything.
    pub system_prompt: Option<String>,
    /// The task.
    pub prompt: String,
    /// Files that come after it.
    pub instructions: Vec<InstructionText>,
    /// Later messages of the same conversation.
    pub turns: Vec<String>,
}

/// An instruction file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstructionText {
    /// Its name, without its directory.
    pub name: String,
    /// What it says.
    pub text: String,
}

impl HarnessCall<'_> {
    /// Whether the call is cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        is_raised(self.cancel)
    }

    /// Runs one command of the agent, no longer than until the step's time is over, with `own` variables besides
    /// those of provisioning.
    pub(super) fn run(
        &self,
        cell: &dyn CellExecutor,
        request: ExecRequest,
        own: &BTreeMap<String, String>,
    ) -> Result<ExecResult, ExecError> {
        let mut env = self.env.clone();
        env.extend(own.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
        env.extend(request.env);
        let access = StepAccess { shows_case: false, egress: self.egress.cloned() };
        let timeout = request.timeout.min(self.deadline.remaining());
        cell.run(&ExecRequest { env, timeout, access, ..request })
    }
}

impl HarnessPrompt {
    /// Reads the files that `task` names.
    ///
    /// # Errors
    /// One cannot be read, is too long or is no text.
    pub fn read(task: &CaseTask) -> Result<Self, HarnessError> {
        let read = |path: &PathBuf| InstructionText::read(path);
        Ok(Self {
            system_prompt: task.system_prompt.clone(),
            prompt: task.prompt.clone(),
            instructions: task.instruction_files.iter().map(read).collect::<Result<_, _>>()?,
            turns: task.turns.clone(),
        })
    }

    /// The prompt and the instruction files, each below `## name`.
    pub fn task_text(&self) -> String {
        let mut text = self.prompt.clone();
        for InstructionText { name, text: instructions } in &self.instructions {
            text.push_str("\n\n## ");
            text.push_str(name);
            text.push_str("\n\n");
            text.push_str(instructions);
        }
        text
    }

    /// All of it in one text, but for the later messages.
    pub fn whole_text(&self) -> String {
        match &self.system_prompt {
            Some(system) => format!("{system}\n\n{}", self.task_text()),
            None => self.task_text(),
        }
    }
}

impl InstructionText {
    fn read(path: &Path) -> Result<Self, HarnessError> {
        let shown = path.display();
        let failed = |words: &dyn fmt::Display| {
            HarnessError::failed(format!("the instruction file '{shown}': {words}"))
        };
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(INSTRUCTION_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(|error| failed(&error))?;
        if bytes.len() as u64 > INSTRUCTION_BYTES_MAX {
            return Err(failed(&format_args!("has more than {INSTRUCTION_BYTES_MAX} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed(&"is not UTF-8"))?;
        Ok(Self { name, text })
    }
}

#[cfg(test)]
mod tests {
    use super::super::end::HarnessFault;
    use super::*;

    #[test]
    fn the_parts_of_a_prompt_have_their_order_and_headings() {
        let instruction = |name: &str, text: &str| InstructionText {
            name: name.to_owned(),
            text: text.to_owned(),
        };
        for (system, instructions, wanted) in [
            (None, vec![], "Mend it."),
            (Some("Be brief."), vec![], "Be brief.\n\nMend it."),
            (
                None,
                vec![instruction("AGENTS.md", "No tabs.\n")],
                "Mend it.\n\n## AGENTS.md\n\nNo tabs.\n",
            ),
            (
                Some("S"),
                vec![instruction("a", "1"), instruction("b", "2")],
                "S\n\nMend it.\n\n## a\n\n1\n\n## b\n\n2",
            ),
        ] {
            let prompt = HarnessPrompt {
                system_prompt: system.map(str::to_owned),
                prompt: "Mend it.".to_owned(),
                instructions,
                turns: vec!["later".to_owned()],
            };
            assert_eq!(prompt.whole_text(), wanted);
        }
    }

    #[test]
    fn an_instruction_file_is_a_text_of_at_most_a_mebibyte() {
        let place = tempfile::tempdir().unwrap();
        for (name, content, is_read) in [
            ("fine.md", vec![b'a'; 1 << 20], true),
            ("long.md", vec![b'a'; (1 << 20) + 1], false),
            ("binary.md", vec![0xff], false),
        ] {
            let path = place.path().join(name);
            std::fs::write(&path, content).unwrap();
            let task = CaseTask { instruction_files: vec![path], ..CaseTask::default() };
            match HarnessPrompt::read(&task) {
                Ok(prompt) => assert!(is_read && prompt.instructions[0].name == name),
                Err(error) => {
                    assert!(!is_read && error.message.contains(name), "{error}");
                    assert_eq!(error.fault, HarnessFault::Failed);
                }
            }
        }
    }
}
