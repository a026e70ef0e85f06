//! Submits a job to a server and follows it to its result.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use super::events::{offsets_of, status_of};
use super::failure::JobFailure;
use super::records::Records;
use super::remote::RemoteRecords;
use crate::cli::remote::events::EventReader;
use crate::job::{JobProgress, JobView};
use cofferdam_core::job::{JobId, JobStatus, RunJobRequest, RunJobResult};

/// The delay before the server is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How often a request is sent before the server counts as gone.
const SUBMITS_MAX: u32 = 3;
/// After this many event streams without an event, only the job itself is requested.
const LISTENS_MAX: u32 = 3;
/// How long a server may give no usable response before it counts as gone.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// A step in the life of the job.
#[derive(Debug)]
pub enum FollowEvent {
    /// The server accepted it.
    Accepted,
    /// Its progress.
    Progressed(JobProgress),
    /// Its result.
    Ended(Box<RunJobResult>),
    /// The connection failed; no event follows.
    Lost(JobFailure),
}

/// Submits `request` and sends events until the job ends or the receiver is dropped.
pub fn follow(
    remote: &RemoteRecords,
    request: &RunJobRequest,
    id: &JobId,
    heard: &Sender<FollowEvent>,
) {
    let last = match submit(remote, request) {
        Ok(()) => {
            if heard.send(FollowEvent::Accepted).is_err() {
                return;
            }
            let mut following = JobFollower { remote, id, heard, last_id: None, empty_streams: 0 };
            following.until_over().map_or_else(FollowEvent::Lost, FollowEvent::Ended)
        }
        Err(fault) => FollowEvent::Lost(fault),
    };
    let _ = heard.send(last);
}

/// Submits the request. Repeated with the same key, it is still one job.
fn submit(remote: &RemoteRecords, request: &RunJobRequest) -> Result<(), JobFailure> {
    let key = JobId::random();
    let mut sent = 1;
    loop {
        match remote.submit(request, key.as_str()) {
            Err(JobFailure::Server(_)) if sent < SUBMITS_MAX => sent += 1,
            submitted => return submitted.map(drop),
        }
        thread::sleep(AGAIN_AFTER);
    }
}

struct JobFollower<'a> {
    remote: &'a RemoteRecords,
    id: &'a JobId,
    heard: &'a Sender<FollowEvent>,
    /// The id of the last event.
    last_id: Option<String>,
    /// How many event streams in a row had no event.
    empty_streams: u32,
}

impl JobFollower<'_> {
    fn until_over(&mut self) -> Result<Box<RunJobResult>, JobFailure> {
        let mut answered = Instant::now();
        loop {
            if self.empty_streams < LISTENS_MAX {
                match self.listen() {
                    0 => self.empty_streams += 1,
                    _ => (self.empty_streams, answered) = (0, Instant::now()),
                }
            }
            match self.remote.view(self.id) {
                Ok(JobView::Ended(result)) => return Ok(result),
                Ok(JobView::Live(live)) => {
                    answered = Instant::now();
                    self.tell_status(live.status);
                }
                // The server may be restarting, or a proxy may answer meanwhile.
                Err(JobFailure::Server(_)) if answered.elapsed() < AWAY_MAX => {}
                Err(fault) => return Err(fault),
            }
            thread::sleep(AGAIN_AFTER);
        }
    }

    /// Sends the events of one stream; returns how many there were.
    fn listen(&mut self) -> u64 {
        let Ok(body) = self.remote.listen(self.id, self.last_id.as_deref()) else { return 0 };
        let (mut events, mut count) = (EventReader::new(body), 0);
        let mut status = JobStatus::Running;
        while let Ok(Some(event)) = events.next() {
            count += 1;
            if event.id.is_some() {
                self.last_id.clone_from(&event.id);
            }
            status = status_of(&event).unwrap_or(status);
            let (stdout_bytes, stderr_bytes) = offsets_of(&event).unwrap_or_default();
            if event.id.is_some() {
                self.tell(JobProgress { status, stdout_bytes, stderr_bytes });
            }
            if event.name == "result" {
                break;
            }
        }
        count
    }

    fn tell_status(&self, status: JobStatus) {
        if self.last_id.is_none() {
            self.tell(JobProgress { status, stdout_bytes: 0, stderr_bytes: 0 });
        }
    }

    fn tell(&self, progress: JobProgress) {
        // Without a receiver, nothing needs the progress.
        let _ = self.heard.send(FollowEvent::Progressed(progress));
    }
}
