//! A container Cell that is started: its directory, its images and the container over them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{getegid, geteuid};

use super::call::{TAIL_CHARACTERS_MAX, call};
use super::controls::{ContainerControls, check, controls};
use super::engine::{CallerLimits, ContainerEngine, ContainerShape, ContainerUser, EngineKind};
use super::environment::base_variables;
use super::image::ContainerImage;
use super::inside::namespaces;
use super::keeper::{CellKeeper, KeeperOrder};
use super::link::{ContainerLink, LinkWatch};
use super::order::{ContainerOrder, ContainerReply};
use super::relay::WayOut;
use super::settings::ContainerSettings;
use crate::case::cell::capture::StepOutput;
use crate::case::cell::error::ExecError;
use crate::case::cell::host::directory::CellDirectory;
use crate::case::cell::host::message::{StepOrder, StepReply};
use crate::case::cell::request::CASE_VARIABLE;
use crate::egress::EgressGrant;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// How long the image may take to be fetched, and container.setup to run.
const START_TIMEOUT: Duration = Duration::from_secs(900);
/// How long an image may take to be made of a container.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(900);

/// A started Cell. Dropped, nothing of it is left.
#[derive(Debug)]
pub(super) struct StartedContainer {
    // Dropped first.
    slot: Mutex<ContainerSlot>,
    engine: ContainerEngine,
    name: String,
    /// What a container of this Cell is, besides its image.
    shape: ContainerShape,
    base: BTreeMap<String, String>,
    controls: ContainerControls,
    _keeper: CellKeeper,
    // Removed by the keeper, if not before.
    directory: CellDirectory,
}

/// The container that runs commands now.
#[derive(Debug)]
struct ContainerSlot {
    /// None if a fresh one did not start.
    link: Option<ContainerLink>,
    /// What it was started from.
    image: String,
    shows_case: bool,
}

impl StartedContainer {
    /// Makes the directory, runs container.setup and starts the container.
    ///
    /// # Errors
    /// Nothing is left.
    pub(super) fn make(
        settings: &ContainerSettings,
        cancel: &CancelToken,
    ) -> Result<Self, ExecError> {
        let ContainerSettings { cell, container, setup_egress, host } = settings;
        let engine = ContainerEngine::find(container.backend, &host.search_path)?;
        let deadline = Deadline::after(START_TIMEOUT);
        let image = ContainerImage::find(&engine, &container.image, deadline, cancel)?;
        let base = base_variables(&image.variables, &host.variables, &container.home);
        let directory = CellDirectory::make(&host.base)?;
        let (keeper, name) = keeper(&engine, &directory, &host.helper)?;
        directory.fill(cell.source.as_deref())?;
        let case_dir = cell.case_dir.as_deref().map(Path::canonicalize).transpose();
        let case_dir = case_dir.map_err(|error| ExecError::failed("open case_dir", error))?;
        let user = caller()?;
        let mut shape = ContainerShape {
            name: name.clone(),
            image: image.id,
            user,
            is_rootful: matches!(user, ContainerUser::Caller { uid: 0, .. }),
            helper: host.helper.clone(),
            cell: directory.path(),
            case_dir,
            limits: cell.limits,
            hard_limits: hard_limits()?,
        };
        if !container.setup.is_empty() {
            let egress = setup_egress.as_ref();
            let setup =
                ContainerSetup { engine: &engine, shape: &shape, base: &base, egress, cancel };
            shape.image = setup.run(&container.setup, &directory, &setup_image(&name))?;
        }
        let (link, controls) = start(&engine, &shape, cancel)?;
        let slot = Mutex::new(ContainerSlot {
            link: Some(link),
            image: shape.image.clone(),
            shows_case: shape.case_dir.is_some(),
        });
        Ok(Self { slot, engine, name, shape, base, controls, _keeper: keeper, directory })
    }

    /// The directory of the Cell.
    pub(super) fn directory(&self) -> &CellDirectory {
        &self.directory
    }

    /// The variables of a command that changes none.
    pub(super) fn base(&self) -> &BTreeMap<String, String> {
        &self.base
    }

    /// What is enforced.
    pub(super) fn controls(&self) -> &ContainerControls {
        &self.controls
    }

    /// The directory of the Case, while the container shows it.
    pub(super) fn case_dir(&self) -> Option<PathBuf> {
        self.shape.case_dir.clone().filter(|_| self.slot().shows_case)
    }

    /// Has `order` done by the helper, once the command before has ended.
    pub(super) fn obey(
        &self,
        order: &ContainerOrder,
        stdin: &[u8],
        watch: LinkWatch<'_>,
        output: &StepOutput,
    ) -> Result<ContainerReply, ExecError> {
        let mut slot = self.slot();
        let link = slot.link.as_mut();
        let link = link.ok_or_else(|| ExecError::failed("container", "the container has ended"))?;
        link.obey(order, stdin, watch, output)
    }

    /// Makes an image of the container, and starts a fresh container from it that does not show the Case.
    pub(super) fn commit(&self, cancel: &CancelToken) -> Result<(), ExecError> {
        let mut slot = self.slot();
        let image = committed_image(&self.name);
        commit(&self.engine, &self.name, &image, cancel)?;
        slot.image = image;
        slot.shows_case = false;
        self.replace(&mut slot, cancel)
    }

    /// Starts a fresh container from the image of the last commit, or else of the start.
    pub(super) fn renew(&self, cancel: &CancelToken) -> Result<(), ExecError> {
        self.replace(&mut self.slot(), cancel)
    }

    fn replace(&self, slot: &mut ContainerSlot, cancel: &CancelToken) -> Result<(), ExecError> {
        // Its name is the next one's.
        drop(slot.link.take());
        let mut shape = ContainerShape { image: slot.image.clone(), ..self.shape.clone() };
        if !slot.shows_case {
            shape.case_dir = None;
        }
        slot.link = Some(start(&self.engine, &shape, cancel)?.0);
        Ok(())
    }

    fn slot(&self) -> MutexGuard<'_, ContainerSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// container.setup: a container of its own, whose commands are root's.
struct ContainerSetup<'s> {
    engine: &'s ContainerEngine,
    shape: &'s ContainerShape,
    base: &'s BTreeMap<String, String>,
    egress: Option<&'s EgressGrant>,
    cancel: &'s CancelToken,
}

impl ContainerSetup<'_> {
    /// Runs `commands` in order. Returns the image with what they did.
    fn run(
        &self,
        commands: &[String],
        directory: &CellDirectory,
        image: &str,
    ) -> Result<String, ExecError> {
        let user = ContainerUser::Root;
        let name = setup_container(&self.shape.name);
        let shape = ContainerShape { name, user, ..self.shape.clone() };
        let (mut link, _) = ContainerLink::start(self.engine, &shape, self.cancel)?;
        let way_out = self.egress.map(WayOut::of).transpose()?;
        let deadline = Deadline::after(START_TIMEOUT);
        for command in commands {
            let (timeout, cancel) = (deadline.remaining(), self.cancel);
            let watch = LinkWatch { timeout, cancel, way_out: way_out.as_ref() };
            self.command(&mut link, command, directory, watch)?;
        }
        if let ContainerUser::Caller { uid, gid } = self.shape.user {
            let timeout = deadline.remaining();
            let watch = LinkWatch { timeout, cancel: self.cancel, way_out: None };
            let order = ContainerOrder::TakeOver { path: shape.cell.clone(), uid, gid };
            let output = StepOutput::new(&shape.limits);
            let done = link.obey(&order, &[], watch, &output)?;
            if !matches!(done.reply, StepReply::Ended(_)) {
                return Err(ExecError::failed("container setup", "its files are not the caller's"));
            }
        }
        commit(self.engine, &shape.name, image, self.cancel)?;
        Ok(image.to_owned())
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

/// Starts a container whose commands are the caller's, and checks that they have no privileges.
fn start(
    engine: &ContainerEngine,
    shape: &ContainerShape,
    cancel: &CancelToken,
) -> Result<(ContainerLink, ContainerControls), ExecError> {
    let (link, facts) = ContainerLink::start(engine, shape, cancel)?;
    if let ContainerUser::Caller { uid, .. } = shape.user {
        check(&facts, uid)?;
    }
    Ok((link, controls(&facts, &namespaces(), shape.limits)))
}

fn commit(
    engine: &ContainerEngine,
    name: &str,
    image: &str,
    cancel: &CancelToken,
) -> Result<(), ExecError> {
    let words = EngineKind::commit(name, image);
    let made = call(&engine.program, &words, Deadline::after(COMMIT_TIMEOUT), Some(cancel))?;
    match made.status.success() {
        true => Ok(()),
        false => Err(ExecError::failed("commit", &made.tail).with("tail", made.tail)),
    }
}

/// Starts the keeper of the Cell in `directory`, whose name its containers and images have too.
fn keeper(
    engine: &ContainerEngine,
    directory: &CellDirectory,
    helper: &Path,
) -> Result<(CellKeeper, String), ExecError> {
    let path = directory.path();
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let containers = [name.clone(), setup_container(&name)];
    let images = [committed_image(&name), setup_image(&name)];
    let calls =
        vec![engine.kind.remove_containers(&containers), engine.kind.remove_images(&images)];
    let order = KeeperOrder { program: engine.program.clone(), calls, directory: path };
    Ok((CellKeeper::start(helper, &order)?, name))
}

fn setup_container(name: &str) -> String {
    format!("{name}-setup")
}

fn setup_image(name: &str) -> String {
    format!("localhost/{name}:setup")
}

fn committed_image(name: &str) -> String {
    format!("localhost/{name}:committed")
}

/// The caller as the engine knows it.
fn caller() -> Result<ContainerUser, ExecError> {
    let id_outside = |map: &str, id: u32| {
        let text = fs::read_to_string(map);
        let text = text.map_err(|error| ExecError::failed("read ids", error))?;
        mapped_id(&text, id).ok_or_else(|| ExecError::failed("read ids", "the caller has none"))
    };
    Ok(ContainerUser::Caller {
        uid: id_outside("/proc/self/uid_map", geteuid().as_raw())?,
        gid: id_outside("/proc/self/gid_map", getegid().as_raw())?,
    })
}

/// The id outside that `map`, a map of a user namespace, has for `id`.
fn mapped_id(map: &str, id: u32) -> Option<u32> {
    let mut ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??, numbers.next()??))
    });
    ranges.find_map(|(inside, outside, count)| {
        let offset = id.checked_sub(inside).filter(|offset| *offset < count)?;
        outside.checked_add(offset)
    })
}

fn hard_limits() -> Result<CallerLimits, ExecError> {
    let hard = |resource| {
        let limits = getrlimit(resource);
        limits.map(|(_, hard)| hard).map_err(|errno| ExecError::failed("read limits", errno))
    };
    Ok(CallerLimits {
        open_files: hard(Resource::RLIMIT_NOFILE)?,
        tasks: hard(Resource::RLIMIT_NPROC)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_that_outside_of_our_user_namespace() {
        for (map, id, wanted) in [
            ("         0          0 4294967295\n", 1000, Some(1000)),
            ("0 1000 1\n", 0, Some(1000)),
            ("0 1000 1\n", 1, None),
            ("0 100 10\n10 500 10\n", 12, Some(502)),
            ("", 0, None),
        ] {
            assert_eq!(mapped_id(map, id), wanted, "{map:?}");
        }
    }
}
