//! Starts the program of a kernel.

use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use super::kernel::{KernelEnd, KernelHandles, RunningKernel};
use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::kernels::{KernelLanguage, first_line};
use crate::workspace::run::{PreparedRun, ProgramReport, no_sandbox};
use cofferdam_core::sync::input_queue::InputQueue;
use cofferdam_core::sync::run_control::RunControl;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{NotStarted, StdinSource, Watch};

/// How long a program may take to be executed.
const EXEC_WAIT: Duration = Duration::from_secs(30);
/// The longest request to a kernel, bytes: more than any code that a service accepts.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// Starts `prepared`, the interpreter of `language`, on a thread of its own, ended by `cancel`. Returns
/// when it is executed.
///
/// # Errors
/// It is not installed, or there is no sandbox for it.
pub fn start(
    mut prepared: PreparedRun,
    language: KernelLanguage,
    watch: Watch,
) -> Result<Arc<RunningKernel>, EngineError> {
    let failed =
        |error: io::Error| EngineError::new(EngineCode::SandboxFailed, format!("kernel: {error}"));
    let control = watch.control.clone();
    let control = control.map_or_else(RunControl::new, Ok).map_err(failed)?;
    let cancel = watch.cancel.clone();
    let input = Arc::new(InputQueue::with_bytes_max(REQUEST_BYTES_MAX).map_err(failed)?);
    let written = input.write(first_line(prepared.run_dir().as_deref()).as_bytes());
    written.map_err(|_| failed(io::Error::other("its first line was refused")))?;
    prepared.spec.stdin = StdinSource::Queue(Arc::clone(&input));
    let handles = KernelHandles { cancel: cancel.clone(), control: control.clone(), input };
    let kernel = Arc::new(RunningKernel::new(language, handles).map_err(failed)?);
    let watch = Watch { control: Some(control.clone()), ..watch };
    let running = Arc::clone(&kernel);
    let supervise = move || {
        // The thread lives as long as the sandbox, which dies with it.
        let end = match prepared.execute(&watch, Some(running.sink())) {
            Ok(report) => end(&report),
            Err(error) => {
                log::error!("a kernel has no sandbox: {error}");
                KernelEnd { exit_code: -1, limit: None }
            }
        };
        running.finish(end);
    };
    Builder::new().name("kernel".to_owned()).spawn(supervise).map_err(failed)?;
    match control.wait_started(Deadline::after(EXEC_WAIT)) {
        Some(Ok(())) => Ok(kernel),
        Some(Err(NotStarted::Exec { errno })) => Err(not_installed(language, errno)),
        Some(Err(NotStarted::Setup(failure))) => Err(no_sandbox(&failure)),
        None => {
            cancel.cancel();
            Err(EngineError::new(EngineCode::SandboxFailed, "the kernel did not start in time"))
        }
    }
}

fn end(report: &ProgramReport) -> KernelEnd {
    KernelEnd { exit_code: report.exit_code(), limit: report.limit() }
}

fn not_installed(language: KernelLanguage, errno: i32) -> EngineError {
    let [program, ..] = language.argv();
    let name = format!("{:?}", nix::errno::Errno::from_raw(errno));
    EngineError::new(EngineCode::LanguageUnavailable, format!("{program}: {name}"))
        .with("language", language.word())
        .with("errno", name)
}
