//! The executor of containers: podman or docker runs one over the directory of the Cell, shown at its own path.
//!
//! The container's first process is our own program (`inside/`), which runs every command and kills all that it
//! started. It is ordered through the pipe of the attached engine (`link.rs`); when our end closes, the container ends
//! and is removed. What is left then, images and the directory, is removed by a process of its own (`keeper.rs`), also
//! after our death.

mod call;
mod controls;
mod engine;
mod environment;
mod frame;
mod image;
mod inside;
mod keeper;
mod link;
mod order;
mod relay;
mod settings;
mod started;

use std::os::fd::{BorrowedFd, OwnedFd};

use self::environment::changed_variables;
use self::link::LinkWatch;
use self::order::{ContainerOrder, ContainerReply, outcome};
use self::relay::WayOut;
use self::started::StartedContainer;
use super::ended::result;
use super::message::{EndedStep, StepOrder};
use crate::case::cell::capture::StepOutput;
use crate::case::cell::error::ExecError;
use crate::case::cell::executor::{CellDescription, CellExecutor};
use crate::case::cell::files::CellEntry;
use crate::case::cell::plan::CellExecutorKind;
use crate::case::cell::request::{CASE_VARIABLE, CellStep, ExecRequest};
use crate::case::cell::result::{ExecResult, StepControls};
use crate::case::cell::stage::CellStage;
use crate::egress::EgressGrant;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_tree::Owner;

pub use self::inside::serve_container;
pub use self::keeper::serve_keeper;
pub use self::settings::{ContainerHost, ContainerSettings};

/// A Cell whose commands run in a container, one after the other, as the caller without any capability, without a
/// network but their own loopback.
#[derive(Debug)]
pub struct ContainerCell {
    settings: ContainerSettings,
    cancel: CancelToken,
    stage: CellStage<StartedContainer>,
}

impl ContainerCell {
    /// A Cell that is not started. `cancel` ends its commands.
    pub fn new(settings: ContainerSettings, cancel: CancelToken) -> Self {
        Self { settings, cancel, stage: CellStage::default() }
    }

    /// Makes an image of the container as it is now, after provisioning and setup, and goes on in a fresh container
    /// from it, which does not show the directory of the Case. The image is removed with the Cell.
    ///
    /// # Errors
    /// The Cell is not started, or the engine fails.
    pub fn commit(&self) -> Result<(), ExecError> {
        self.stage.with(|started| started.commit(&self.cancel))
    }

    /// Goes on in a fresh container from the image that [`ContainerCell::commit`] made: without what commands did
    /// outside of the directory of the Cell since then.
    ///
    /// # Errors
    /// As [`ContainerCell::commit`].
    pub fn renew(&self) -> Result<(), ExecError> {
        self.stage.with(|started| started.renew(&self.cancel))
    }

    /// Keeps `container.caches` as they are now for later Cells: provisioning has succeeded. A cache that cannot be kept
    /// is logged.
    ///
    /// # Errors
    /// The Cell is not started.
    pub fn keep_caches(&self) -> Result<(), ExecError> {
        self.stage.with(|started| {
            started.keep_caches();
            Ok(())
        })
    }

    /// Ends the container, and has that of the agent outlive the Cell, stopped; that of now without a commit. Nothing
    /// runs in this Cell afterwards. Returns its name.
    ///
    /// # Errors
    /// The Cell is not started, containers were not to stay, or the engine fails.
    pub fn keep(&self) -> Result<String, ExecError> {
        self.stage.with(StartedContainer::keep)
    }

    fn run_in(
        &self,
        started: &StartedContainer,
        request: &ExecRequest,
    ) -> Result<ExecResult, ExecError> {
        let order = order(started, request)?;
        let read = |path: &str| started.read_text(path, &self.cancel);
        let way_out = request.access.egress.as_ref();
        let way_out = way_out.map(|grant| WayOut::of(grant, &self.settings.host.base, &read));
        let way_out = way_out.transpose()?;
        let output = StepOutput::new(&request.limits(self.settings.cell.limits));
        let (timeout, cancel) = (request.timeout, &self.cancel);
        let watch = LinkWatch { timeout, cancel, way_out: way_out.as_ref() };
        let done = started.obey(&order, &request.stdin, watch, &output)?;
        let ContainerReply { reply, stopped, events } = done;
        let controls = StepControls {
            executor: CellExecutorKind::Container,
            not_enforced: started.controls().not_enforced.clone(),
        };
        let outcome = |ended: EndedStep| outcome(ended.code, ended.signal, stopped, events);
        result(request, reply, outcome, &output, controls)
    }
}

impl CellExecutor for ContainerCell {
    fn start(&self) -> Result<(), ExecError> {
        self.stage.start(|| StartedContainer::make(&self.settings, &self.cancel))
    }

    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        self.stage.with(|started| self.run_in(started, request))
    }

    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        self.stage.with(|started| started.directory().files().put(path, content, mode))
    }

    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> {
        self.stage.with(|started| started.directory().files().get(path))
    }

    fn remove(&self, path: &str) -> Result<(), ExecError> {
        self.stage.with(|started| started.directory().files().remove(path))
    }

    fn list(&self, path: &str) -> Result<Vec<CellEntry>, ExecError> {
        self.stage.with(|started| started.directory().files().list(path))
    }

    fn open_sandbox(&self) -> Result<OwnedFd, ExecError> {
        self.stage.with(|started| started.directory().open_sandbox())
    }

    fn replace_sandbox(
        &self,
        fill: &mut dyn FnMut(BorrowedFd<'_>, Owner) -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        self.stage.with(|started| started.directory().replace_sandbox(fill))
    }

    fn stop(&self) {
        self.stage.stop();
    }

    fn describe(&self) -> Result<CellDescription, ExecError> {
        self.stage.with(|started| {
            let layout = started.directory().layout();
            let controls = started.controls().clone();
            Ok(CellDescription {
                kind: CellExecutorKind::Container,
                sandbox: layout.sandbox().to_owned(),
                env: layout.env().to_owned(),
                case_dir: started.case_dir(),
                enforced: controls.enforced,
                not_enforced: controls.not_enforced,
            })
        })
    }
}

/// The order to run the command of `request`.
fn order(started: &StartedContainer, request: &ExecRequest) -> Result<ContainerOrder, ExecError> {
    let layout = started.directory().layout();
    let CellStep { argv, cwd, .. } = request.checked(layout)?;
    let mut env = changed_variables(started.base(), &request.env, layout.env());
    if request.access.shows_case {
        let case_dir = started.case_dir().map(|path| path.display().to_string());
        env.extend(case_dir.map(|path| (CASE_VARIABLE.to_owned(), path)));
    }
    let egress = request.access.egress.as_ref();
    env.extend(egress.map(EgressGrant::environment).unwrap_or_default());
    let step = StepOrder { argv, env, cwd, stdin_bytes: request.stdin.len() };
    let timeout_ms = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
    Ok(ContainerOrder::Run { step, timeout_ms, is_relayed: egress.is_some() })
}
