//! Blocks that are programs: their files, their commands, and what their ends mean.

use std::time::Duration;

use uuid::Uuid;

use super::answer::{BlockEnd, BlockStatus};
use crate::workspace::files::NewFileRequest;
use crate::workspace::helpers::constants::INLINE_SOURCE_DIR;
use crate::workspace::helpers::{BlockSpec, CodeBlock, build_block_spec};
use crate::workspace::kernels::CodeFault;
use crate::workspace::request::decode;
use crate::workspace::run::ProgramReport;
use cofferdam_core::job::TextEncoding;

/// A block that is a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockProgram {
    /// The program and its arguments, in the directory of sources.
    pub argv: Vec<String>,
    spec: BlockSpec,
    /// The file, relative to the workspace.
    path: String,
}

/// The directory of the sources of one call, below that of all sources.
#[derive(Debug)]
pub struct CallDirectory(String);

impl CallDirectory {
    /// One that no other call has.
    pub fn new() -> Self {
        Self(format!("call_{}", Uuid::new_v4().simple()))
    }

    /// The program of `block`, the `index`th of the call; none if nothing executes its language.
    pub fn program(&self, index: usize, block: &CodeBlock) -> Option<BlockProgram> {
        let spec = build_block_spec(index, block).ok()?;
        let file = format!("{}/{}", self.0, spec.file);
        let path = format!("{INLINE_SOURCE_DIR}/{file}");
        let argv = [spec.cmd.clone()].into_iter().chain(spec.args.clone()).chain([file]);
        Some(BlockProgram { argv: argv.collect(), spec, path })
    }
}

impl BlockProgram {
    /// The file with the code of its block.
    pub fn file(&self, block: &CodeBlock) -> NewFileRequest {
        NewFileRequest {
            path: self.path.clone(),
            content: block.code.clone(),
            encoding: None,
            mode: Some(self.spec.mode),
        }
    }

    /// How its block ended.
    pub fn end(&self, report: ProgramReport) -> BlockEnd {
        let status = status_of(&report);
        let (exit_code, limit) = (report.exit_code(), report.limit());
        let duration = Duration::from_millis(report.duration_ms());
        let refused = report.error().cloned();
        let (encoding, [stdout, stderr]) = report.into_streams();
        let mut text = lossy(encoding, &stdout) + &lossy(encoding, &stderr);
        let mut failure = None;
        if status != BlockStatus::Ok {
            text.extend(refused.iter().map(|error| error.message.as_str()));
            let command = self.argv.join(" ");
            failure = Some(format!(
                "command failed (cwd={INLINE_SOURCE_DIR}, cmd={command}): {text}: exit status {exit_code}\n"
            ));
            text.clear();
        }
        let error = refused.map(|error| CodeFault {
            name: error.code.word().to_owned(),
            value: error.message,
            traceback: String::new(),
        });
        BlockEnd {
            stdout,
            stderr,
            encoding,
            text,
            exit_code: Some(exit_code),
            duration,
            limit,
            error,
            failure,
            ..BlockEnd::of(status)
        }
    }
}

/// The end of a block in a language that nothing executes.
pub fn unsupported(block: &CodeBlock) -> BlockEnd {
    let failure = Some(format!("unsupported language: {}\n", block.language));
    BlockEnd { failure, ..BlockEnd::of(BlockStatus::Unsupported) }
}

fn status_of(report: &ProgramReport) -> BlockStatus {
    if report.timed_out() {
        BlockStatus::TimedOut
    } else if report.exit_code() == 0 {
        BlockStatus::Ok
    } else if report.is_cancelled() || (report.limit().is_some() && report.exit_code() < 0) {
        BlockStatus::Killed
    } else {
        BlockStatus::Error
    }
}

/// The text of a field of bytes. U+FFFD stands for what is no text.
fn lossy(encoding: TextEncoding, field: &str) -> String {
    match decode(encoding, "", field.to_owned()) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // Never: we have encoded it.
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::{CapturedStream, Enforced, LimitKind, Outcome, RunReport, Timings, Usage};

    fn end(outcome: Outcome, stdout: &[u8], stderr: &[u8]) -> BlockEnd {
        let usage = Usage {
            wall_ms: 7,
            cpu_ms: 0,
            memory_peak_bytes: 0,
            memory_peak_source: "rusage",
            processes_peak: None,
            oom_kills: None,
            stdout_bytes: 0,
            stderr_bytes: 0,
        };
        let stream = |bytes: &[u8]| CapturedStream {
            bytes: bytes.to_vec(),
            bytes_total: bytes.len() as u64,
            truncated: false,
        };
        let report = RunReport {
            outcome,
            stdout: stream(stdout),
            stderr: stream(stderr),
            usage,
            enforced: Enforced::default(),
            not_enforced: vec![],
            timings: Timings::default(),
            standby: false,
        };
        let block = CodeBlock { code: String::new(), language: "sh".into() };
        let directory = CallDirectory("call_1".into());
        directory.program(2, &block).unwrap().end(ProgramReport::of(report, None))
    }

    #[test]
    fn a_failure_says_the_command_and_has_the_output() {
        let failed = end(Outcome::Exited { code: 3 }, b"out\n", b"err\xFF\n");
        assert_eq!(
            failed.failure.as_deref(),
            Some(
                "command failed (cwd=src, cmd=bash call_1/code_2.sh): out\nerr\u{FFFD}\n: \
                 exit status 3\n"
            )
        );
        assert_eq!((&*failed.text, failed.exit_code), ("", Some(3)));
        assert_eq!((failed.encoding, &*failed.stdout), (TextEncoding::Base64, "b3V0Cg=="));
        let fine = end(Outcome::Exited { code: 0 }, b"out\n", b"err\n");
        assert_eq!((&*fine.text, fine.failure), ("out\nerr\n", None));
    }

    #[test]
    fn a_status_tells_what_ended_the_program() {
        let limit = |kind, code| Outcome::LimitHit { kind, code };
        for (outcome, status) in [
            (Outcome::Exited { code: 0 }, BlockStatus::Ok),
            (Outcome::Exited { code: 1 }, BlockStatus::Error),
            (Outcome::Signaled { signal: 11 }, BlockStatus::Error),
            (limit(LimitKind::WallTime, None), BlockStatus::TimedOut),
            (limit(LimitKind::Memory, Some(137)), BlockStatus::Killed),
            (limit(LimitKind::Disk, Some(1)), BlockStatus::Error),
            (Outcome::Cancelled, BlockStatus::Killed),
        ] {
            assert_eq!(end(outcome, b"", b"").status, status, "{outcome:?}");
        }
    }
}
