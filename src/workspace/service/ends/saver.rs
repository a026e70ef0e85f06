//! A thread that saves and parks workspaces as they are offered.

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::keeper::Keeper;
use super::save_queue::SaveTask;
use crate::workspace::service::registry::Kept;
use cofferdam_core::values::deadline::Deadline;

/// The thread. Dropping it ends it.
#[derive(Debug)]
pub struct Saver {
    keeper: Arc<Keeper>,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    /// Starts one.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(keeper: Arc<Keeper>) -> io::Result<Self> {
        let tasks = Arc::clone(&keeper);
        let work = move || {
            while let Some(task) = tasks.saves.wait() {
                tasks.perform(task);
            }
        };
        let thread = Builder::new().name("saver".to_owned()).spawn(work)?;
        Ok(Self { keeper, thread: Some(thread) })
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.keeper.saves.close();
        self.keeper.stop_at(Deadline::after(Duration::ZERO));
        if let Some(thread) = self.thread.take() {
            // A panic of the saver has been logged.
            let _ = thread.join();
        }
    }
}

impl Keeper {
    fn perform(&self, task: SaveTask) {
        let (SaveTask::Save(number) | SaveTask::Park(number)) = task;
        let Some(Kept::Live(live)) = self.registry.kept(number) else { return };
        let done = match task {
            SaveTask::Save(_) if live.is_over() || live.unchanged_since().is_some() => return,
            SaveTask::Save(_) => self.save(&live).map(drop),
            SaveTask::Park(_) => {
                self.park(&live, |live| live.begin_end_if_due(Instant::now())).map(drop)
            }
        };
        if let Err(error) = done {
            log::warn!(workspace_id = live.id; "a workspace could not be saved, which is tried again: {error}");
            self.saves.offer_again(number);
        }
    }
}
