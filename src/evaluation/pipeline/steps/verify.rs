//! The step `running_tests`: what was changed is compared, and tested.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::evaluating::{Evaluating, SteppedValue, sandbox_failed};
use super::open::OpenTask;
use crate::evaluation::patch::{RestoreRules, TreeWriter};
use crate::evaluation::pipeline::comparison::{ComparedWork, Comparison};
use crate::evaluation::pipeline::ending::EarlyEnd;
use crate::evaluation::pipeline::grading::{EndedTest, TestPhase, block};
use crate::evaluation::result::{EvaluationStep, PatchFacts};
use crate::evaluation::trees::FrozenFiles;
use crate::evaluation::verdict::{EvaluationEnd, judge};
use cofferdam_core::SetupFailure;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_tree::StopCheck;

const STEP: EvaluationStep = EvaluationStep::RunningTests;

impl Evaluating<'_> {
    /// Compares `left` with the base, runs the tests over it and judges them.
    ///
    /// # Errors
    /// The patch cannot be graded, or a sandbox failed.
    pub fn verify(
        &mut self,
        open: &OpenTask,
        base: &FrozenFiles,
        left: Option<&FrozenFiles>,
    ) -> Result<(), EarlyEnd> {
        self.step(STEP, |evaluating| {
            let graded = evaluating.compare(open, base, left)?;
            evaluating.queue.snapshot(&evaluating.result);
            evaluating.test(open, &graded)?;
            Ok(SteppedValue { value: (), cached: false })
        })?;
        self.result.step = EvaluationStep::Cleanup;
        self.queue.step(EvaluationStep::Cleanup);
        let graded = EvaluationEnd::Graded(&self.result.test_results);
        let judgement = judge(self.result.reward.map_or(graded, EvaluationEnd::Rewarded));
        self.result.conclude(judgement);
        self.result.step = EvaluationStep::Done;
        Ok(())
    }

    /// Compares `left` with the base and returns what tests get.
    fn compare(
        &mut self,
        open: &OpenTask,
        base: &FrozenFiles,
        left: Option<&FrozenFiles>,
    ) -> Result<FrozenFiles, EarlyEnd> {
        let patch_bytes_max = self.settings.patch_bytes_max;
        let comparison = Comparison {
            bounds: self.settings.bounds,
            disk_bytes_max: self.settings.disk_bytes_max,
            patch_bytes_max: if weakened::lacks(Wall::Bounded) {
                u64::MAX
            } else {
                patch_bytes_max
            },
            place: &open.place,
            base,
            watch: self.watch,
            deadline: self.deadline,
        };
        let rules = RestoreRules::new(&open.task.verify, &open.task.solution_paths)
            .map_err(|words| SetupFailure::from_words("verify", words))
            .map_err(sandbox_failed(STEP))?;
        let compared =
            comparison.run(left.unwrap_or(base), &rules, |writer| write_tests(open, writer));
        let compared = compared.map_err(|error| EarlyEnd::of_patch(STEP, &error))?;
        let ComparedWork { patch, omitted, withheld, graded } = compared;
        let bytes = patch.bytes.len() as u64;
        let (text, encoding) = match String::from_utf8(patch.bytes) {
            Ok(text) => (text, "utf-8"),
            Err(error) => (STANDARD.encode(error.as_bytes()), "base64"),
        };
        self.result.patch = Some(PatchFacts {
            bytes,
            sha256: patch.sha256,
            files: patch.files,
            encoding,
            withheld,
            omitted,
        });
        self.result.agent_patch = Some(text);
        Ok(graded)
    }

    fn test(&mut self, open: &OpenTask, graded: &FrozenFiles) -> Result<(), EarlyEnd> {
        let is_over = || self.is_over();
        stage_tests(open, StopCheck(&is_over)).map_err(sandbox_failed(STEP))?;
        let all = self.outputs.collected();
        let mut graded = graded.clone();
        for test in &open.task.tests {
            let phase = TestPhase {
                settings: self.settings,
                task: &open.task,
                place: &open.place,
                graded: &graded,
                staging: &open.staging,
                bounds: self.bounds(&open.task),
                outputs: &self.outputs,
                watch: self.watch,
                deadline: self.deadline,
            };
            let ended = phase.run(test).map_err(sandbox_failed(STEP))?;
            let Some(EndedTest { mut result, reported, report, tree }) = ended else {
                return Err(self.over(STEP));
            };
            self.note_controls(&report);
            result.output = self.outputs.redacted(result.output);
            all.add(block(&result).as_bytes());
            self.result.test_output = all.text().0;
            let (results, reward) = reported.results(result);
            for mut result in results {
                result.output = self.outputs.redacted(result.output);
                self.queue.test(&result);
                self.result.add_test(result);
            }
            self.result.reward = reward.map_err(|error| EarlyEnd::of_reward(&error))?;
            if weakened::lacks(Wall::Fresh) {
                graded = tree.freeze(StopCheck::never()).map_err(sandbox_failed(STEP))?;
            }
        }
        Ok(())
    }
}

/// Writes the files of `tests/` that go into the repository, whatever stands at their places.
fn write_tests(open: &OpenTask, writer: &TreeWriter<'_>) -> Result<(), SetupFailure> {
    for path in &open.task.test_files {
        let source = open.root.join("tests").join(path);
        let opened = File::open(&source).and_then(|file| Ok((is_executable(&file)?, file)));
        let (is_executable, file) =
            opened.map_err(|error| SetupFailure::from_io("open test file", &error))?;
        writer.write_file(path.as_os_str().as_bytes(), file, is_executable)?;
    }
    Ok(())
}

fn is_executable(file: &File) -> std::io::Result<bool> {
    use std::os::unix::fs::PermissionsExt;
    Ok(file.metadata()?.permissions().mode() & 0o111 != 0)
}

fn stage_tests(open: &OpenTask, stop: StopCheck<'_>) -> Result<(), SetupFailure> {
    let (staged, tests) = (Path::new("tests"), open.root.join("tests"));
    if tests.is_dir() { open.staging.copy_files(&tests, staged, stop) } else { Ok(()) }
}
