//! The sandbox of a program: its own, or that of its workspace.

use std::sync::Arc;

use crate::workspace::error::{EngineCode, EngineError};
use crate::workspace::request::SandboxScope;
use crate::workspace::service::live::{LiveProgram, LiveWorkspace, ProgramKind};
use crate::workspace::trees::{LastingSandbox, PlainProgram, SharedTree, TreeSandbox};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::sync::run_control::RunControl;
use cofferdam_core::{Limits, NotStarted, OutputSink, RunReport, RunSpec, Watch};
use cofferdam_sandbox::engine::ProgramLabel;

/// A program in the sandbox of its workspace.
#[derive(Debug)]
struct ProgramOfShared {
    sandbox: Arc<dyn LastingSandbox>,
    run_dir: Option<String>,
}

/// The sandbox for a program of `live`, whose files the caller is in with `tree`. That of the workspace
/// is started here if it does not live; `limits` bound all programs in it together.
///
/// # Errors
/// It cannot be made.
pub fn sandbox_of(
    live: &Arc<LiveWorkspace>,
    tree: &SharedTree<'_>,
    (own_bytes_max, plain): (u64, Option<PlainProgram<'_>>),
    limits: Limits,
    run_dir: Option<String>,
) -> Result<Box<dyn TreeSandbox>, EngineError> {
    match live.settings.sandbox {
        SandboxScope::Program => tree.sandbox(live.settings.path.clone(), own_bytes_max, plain),
        SandboxScope::Workspace => {
            let start = || start(live, tree, own_bytes_max, limits);
            let sandbox = live.shared.current_or(start)?;
            Ok(Box::new(ProgramOfShared { sandbox, run_dir }))
        }
    }
}

fn start(
    live: &Arc<LiveWorkspace>,
    tree: &SharedTree<'_>,
    own_bytes_max: u64,
    limits: Limits,
) -> Result<Arc<dyn LastingSandbox>, EngineError> {
    let failed = |error: std::io::Error| {
        EngineError::new(EngineCode::SandboxFailed, format!("eventfd: {error}"))
    };
    let cancel = CancelToken::new().map_err(failed)?;
    let control = RunControl::new().map_err(failed)?;
    let watch = Watch { control: Some(control.clone()), ..Watch::of(cancel.clone()) };
    let kind = ProgramKind::Sandbox;
    let program = LiveProgram { cancel, control: Some(control), kind };
    // The sandbox counts as a program of the workspace: it has its files mounted.
    let program = live.begin_program(tree, program)?;
    let retained = Retained::of(Arc::new(program));
    let egress = live.network.grant_shared()?.map(|grant| grant.service());
    let path = live.settings.path.clone();
    tree.lasting_sandbox(path, own_bytes_max, limits, egress, retained, watch)
}

impl TreeSandbox for ProgramOfShared {
    fn run(
        self: Box<Self>,
        spec: RunSpec,
        retained: Retained,
        watch: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let Self { sandbox, run_dir } = *self;
        let label = ProgramLabel { run_dir, control: watch.control.clone() };
        let report = sandbox.run(spec, label, watch, sink);
        // What the program left does not keep its place among those that run.
        drop(retained);
        report
    }
}
