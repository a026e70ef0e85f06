//! The graders that need no runner of ours.

mod command;
mod expected_files;
mod implemented;
mod step;
mod test_command;
mod unsupported;

use self::command::CommandGrader;
use self::expected_files::FilesGrader;
use self::implemented::ImplementedGrader;
use self::test_command::TestsGrader;
use self::unsupported::UnsupportedGrader;
use super::grader::Grader;
use super::score::GraderWeight;
use crate::case::file::{CaseGrader, GraderKind};

pub use step::{StepRun, run_shell};
pub use test_command::{TestVerdict, test_verdict};

/// The built-in grader of `written`; `None` for those with our runner of pytest, and after an error in the Case.
pub fn built_in_grader(written: &CaseGrader) -> Option<Box<dyn Grader>> {
    let counts = GraderWeight { weight: written.weight, gate: written.gate };
    Some(match written.kind.clone()? {
        GraderKind::Command { cmd, expect_exit, timeout_s } => {
            Box::new(CommandGrader { counts, cmd, expect_exit, timeout_s })
        }
        GraderKind::Tests { cmd, counts: tests } => Box::new(TestsGrader { counts, cmd, tests }),
        GraderKind::Files { expect_dir, patterns } => {
            Box::new(FilesGrader { counts, expect_dir, patterns })
        }
        GraderKind::Implemented { files } => Box::new(ImplementedGrader { counts, files }),
        GraderKind::Unsupported { name } => Box::new(UnsupportedGrader { counts, name }),
        GraderKind::Pytest { .. } | GraderKind::Swebench { .. } => return None,
    })
}
