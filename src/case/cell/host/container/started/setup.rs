//! container.setup: a container of its own, whose commands are root's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use super::shown::ShownDirectory;
use super::{START_TIMEOUT, commit, setup_container};
use crate::case::cell::capture::StepOutput;
use crate::case::cell::error::ExecError;
use crate::case::cell::host::container::call::TAIL_CHARACTERS_MAX;
use crate::case::cell::host::container::engine::{ContainerEngine, ContainerShape, ContainerUser};
use crate::case::cell::host::container::link::{ContainerLink, LinkWatch};
use crate::case::cell::host::container::order::ContainerOrder;
use crate::case::cell::host::container::relay::WayOut;
use crate::case::cell::host::directory::CellDirectory;
use crate::case::cell::host::message::{StepOrder, StepReply};
use crate::case::cell::request::CASE_VARIABLE;
use crate::egress::EgressGrant;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// container.setup: a container of its own, whose commands are root's.
pub(super) struct ContainerSetup<'s> {
    pub(super) engine: &'s ContainerEngine,
    pub(super) shape: &'s ContainerShape,
    pub(super) base: &'s BTreeMap<String, String>,
    pub(super) egress: Option<&'s EgressGrant>,
    pub(super) cancel: &'s CancelToken,
}

impl ContainerSetup<'_> {
    /// Runs `commands` in order. Returns the image with what they did.
    pub(super) fn run(
        &self,
        commands: &[String],
        (directory, shown): (&CellDirectory, &ShownDirectory),
        image: &str,
    ) -> Result<String, ExecError> {
        let user = ContainerUser::Root;
        let name = setup_container(&self.shape.name);
        let shape = ContainerShape { name, user, stays: false, ..self.shape.clone() };
        let (link, _) = ContainerLink::start(self.engine, &shape, self.cancel)?;
        let link = RefCell::new(link);
        let read = |path: &str| link.borrow_mut().read_text(path, self.cancel);
        let way_out = self.egress.map(|grant| WayOut::of(grant, directory.parent(), &read));
        let way_out = way_out.transpose()?;
        let mut link = link.into_inner();
        let trust =
            way_out.as_ref().map(|way_out| shown.show_trust(way_out.trusted())).transpose()?;
        let deadline = Deadline::after(START_TIMEOUT);
        for command in commands {
            let (timeout, cancel) = (deadline.remaining(), self.cancel);
            let watch = LinkWatch { timeout, cancel, way_out: way_out.as_ref() };
            self.command(&mut link, command, directory, watch)?;
        }
        drop(trust);
        let cell = shape.cell.as_path();
        for path in [cell].into_iter().chain(shown.cache_targets()) {
            self.take_over(&mut link, path, deadline)?;
        }
        commit(self.engine, &shape.name, image, self.cancel)?;
        Ok(image.to_owned())
    }

    /// Gives all below `path` to the caller.
    fn take_over(
        &self,
        link: &mut ContainerLink,
        path: &Path,
        deadline: Deadline,
    ) -> Result<(), ExecError> {
        let ContainerUser::Caller { uid, gid } = self.shape.user else { return Ok(()) };
        let watch = LinkWatch { timeout: deadline.remaining(), cancel: self.cancel, way_out: None };
        let order = ContainerOrder::TakeOver { path: path.to_owned(), uid, gid };
        let done = link.obey(&order, &[], watch, &StepOutput::new(&self.shape.limits))?;
        match done.reply {
            StepReply::Ended(_) => Ok(()),
            _ => Err(ExecError::failed("container setup", "its files are not the caller's")),
        }
    }

    fn command(
        &self,
        link: &mut ContainerLink,
        command: &str,
        directory: &CellDirectory,
        watch: LinkWatch<'_>,
    ) -> Result<(), ExecError> {
        let mut env = self.base.clone();
        if let Some(case_dir) = &self.shape.case_dir {
            env.insert(CASE_VARIABLE.to_owned(), case_dir.display().to_string());
        }
        env.extend(self.egress.map(EgressGrant::environment).unwrap_or_default());
        let argv = ["sh", "-c", command].map(str::to_owned).to_vec();
        let cwd = directory.layout().sandbox().to_owned();
        let step = StepOrder { argv, env, cwd, stdin_bytes: 0 };
        let timeout_ms = u64::try_from(watch.timeout.as_millis()).unwrap_or(u64::MAX);
        let order = ContainerOrder::Run { step, timeout_ms, is_relayed: watch.way_out.is_some() };
        let output = StepOutput::new(&self.shape.limits);
        let done = link.obey(&order, &[], watch, &output)?;
        let outcome = done.step_outcome();
        if outcome.is_some_and(|outcome| outcome.shell_code() == Some(0)) {
            return Ok(());
        }
        let (stdout, stderr) = output.take();
        let text = format!("{}{}", stdout.text, stderr.text);
        let skipped = text.chars().count().saturating_sub(TAIL_CHARACTERS_MAX);
        let mut error = ExecError::failed("container setup", "");
        error.message = format!("container setup failed: {command}");
        let word = outcome.map_or("not executed", |outcome| outcome.word());
        Err(error
            .with("tail", text.chars().skip(skipped).collect::<String>())
            .with("outcome", word))
    }
}
