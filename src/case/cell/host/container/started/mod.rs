//! A container Cell that is started: its directory, its images and the container over them.

mod caller;
mod setup;
mod shown;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::caller::{caller, hard_limits};
use self::setup::ContainerSetup;
use self::shown::ShownDirectory;
use super::call::call;
use super::controls::{ContainerControls, check, controls};
use super::engine::{ContainerEngine, ContainerShape, ContainerUser, EngineKind};
use super::environment::{HOME, base_variables};
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
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// How long the image may take to be fetched, and container.setup to run.
const START_TIMEOUT: Duration = Duration::from_secs(900);
/// How long an image may take to be made of a container.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(900);
/// How long a container may take to be renamed or removed.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

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
    keeper: Mutex<CellKeeper>,
    // Removed by the keeper, if not before.
    directory: CellDirectory,
    shown: ShownDirectory,
}

/// The container that runs commands now.
#[derive(Debug)]
struct ContainerSlot {
    /// None if a fresh one did not start.
    link: Option<ContainerLink>,
    /// What it was started from.
    image: String,
    shows_case: bool,
    /// Whether the container is the first since the commit: the agent's.
    is_agents: bool,
    /// Whether the agent's container is put aside.
    has_kept: bool,
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
        let ContainerSettings { cell, container, setup_egress, host, .. } = settings;
        let engine = ContainerEngine::find(container.backend, &host.search_path)?;
        let deadline = Deadline::after(START_TIMEOUT);
        let image = ContainerImage::find(&engine, &container.image, deadline, cancel)?;
        let base = base_variables(&image.variables, &host.variables, &container.home);
        let directory = CellDirectory::make(&host.base)?;
        let (keeper, name) = keeper(&engine, &directory, &host.helper)?;
        let mut shown = ShownDirectory::make(&directory.path())?;
        directory.fill(cell.source.as_deref())?;
        if let Some(all) = &host.caches {
            let home = base.get(HOME).map_or("", String::as_str);
            let caches = (Path::new(home), container.caches.as_slice());
            shown.add_caches(caches, &image.id, all, cancel)?;
        }
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
            shown: shown.paths(),
            stays: settings.stays,
            limits: cell.limits,
            hard_limits: hard_limits()?,
        };
        if !container.setup.is_empty() {
            let egress = setup_egress.as_ref();
            let setup =
                ContainerSetup { engine: &engine, shape: &shape, base: &base, egress, cancel };
            let files = (&directory, &shown);
            shape.image = setup.run(&container.setup, files, &setup_image(&name))?;
        }
        let (link, controls) = start(&engine, &shape, cancel)?;
        let slot = Mutex::new(ContainerSlot {
            link: Some(link),
            image: shape.image.clone(),
            shows_case: shape.case_dir.is_some(),
            is_agents: false,
            has_kept: false,
        });
        let keeper = Mutex::new(keeper);
        Ok(Self { slot, engine, name, shape, base, controls, keeper, directory, shown })
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
        let trusted = watch.way_out.map(WayOut::trusted).unwrap_or_default();
        let _shown = self.shown.show_trust(trusted)?;
        link.obey(order, stdin, watch, output)
    }

    /// The text of the file at `path` in the container, if it has any.
    pub(super) fn read_text(&self, path: &str, cancel: &CancelToken) -> Option<String> {
        self.slot().link.as_mut()?.read_text(path, cancel)
    }

    /// Keeps the caches as they are for later Cells, once the commands before have ended.
    pub(super) fn keep_caches(&self) {
        let _slot = self.slot();
        self.shown.keep_caches();
    }

    /// Makes an image of the container, and starts a fresh container from it that does not show the Case.
    pub(super) fn commit(&self, cancel: &CancelToken) -> Result<(), ExecError> {
        let mut slot = self.slot();
        let image = committed_image(&self.name);
        commit(&self.engine, &self.name, &image, cancel)?;
        slot.image = image;
        slot.shows_case = false;
        self.end(&mut slot)?;
        self.shown.settle_caches()?;
        self.begin(&mut slot, cancel)?;
        slot.is_agents = true;
        Ok(())
    }

    /// Starts a fresh container from the image of the last commit, or else of the start.
    pub(super) fn renew(&self, cancel: &CancelToken) -> Result<(), ExecError> {
        let mut slot = self.slot();
        self.end(&mut slot)?;
        self.shown.renew_caches()?;
        self.begin(&mut slot, cancel)
    }

    /// Ends the container and keeps the agent's, or the current one if no agent has run. Returns its name.
    pub(super) fn keep(&self) -> Result<String, ExecError> {
        let mut slot = self.slot();
        slot.is_agents = !slot.has_kept;
        self.end(&mut slot)?;
        if !slot.has_kept {
            return Err(ExecError::failed("keep container", "it was not to stay"));
        }
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.keep_container()?;
        Ok(kept_container(&self.name))
    }

    /// Ends the container. One that stays is removed, or put aside if it is the agent's.
    fn end(&self, slot: &mut ContainerSlot) -> Result<(), ExecError> {
        // Its name is the next one's.
        let Some(link) = slot.link.take() else { return Ok(()) };
        drop(link);
        if !self.shape.stays {
            return Ok(());
        }
        if std::mem::take(&mut slot.is_agents) && !slot.has_kept {
            match self.call(&EngineKind::rename(&self.name, &kept_container(&self.name))) {
                Ok(()) => {
                    slot.has_kept = true;
                    return Ok(());
                }
                // One that had to be killed is gone.
                Err(error) => log::warn!("the agent's container is not kept: {error}"),
            }
        }
        self.call(&self.engine.kind.remove_containers(std::slice::from_ref(&self.name)))
    }

    fn call(&self, words: &[String]) -> Result<(), ExecError> {
        let done = call(&self.engine.program, words, Deadline::after(CALL_TIMEOUT), None)?;
        match done.status.success() {
            true => Ok(()),
            false => Err(ExecError::failed("container", done.tail)),
        }
    }

    fn begin(&self, slot: &mut ContainerSlot, cancel: &CancelToken) -> Result<(), ExecError> {
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
    let (kept, setup) = (kept_container(&name), setup_container(&name));
    let images = [committed_image(&name), setup_image(&name)];
    let order = KeeperOrder {
        program: engine.program.clone(),
        calls: vec![
            engine.kind.remove_containers(&[name.clone(), setup.clone(), kept]),
            engine.kind.remove_images(&images),
        ],
        // The images are below the container that stays.
        calls_if_kept: vec![engine.kind.remove_containers(&[name.clone(), setup])],
        directories: vec![ShownDirectory::path_of(&path), path],
    };
    Ok((CellKeeper::start(helper, &order)?, name))
}

fn kept_container(name: &str) -> String {
    format!("{name}-kept")
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
