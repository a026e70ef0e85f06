//! One job of a server, followed from its request to its result.

use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use super::events::Events;
use super::fault::Fault;
use super::records::Records;
use super::remote::Remote;
use crate::job::{JobProgress, JobView};
use cofferdam_core::job::{JobId, JobStatus, RunJobRequest, RunJobResult};

/// How long to wait before the server is asked again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How often a request is sent before its server counts as gone.
const SUBMITS_MAX: u32 = 3;
/// How often events are asked for in vain before the job itself is asked for instead.
const LISTENS_MAX: u32 = 3;
/// How long a server may give no usable answer before it counts as gone.
const AWAY_MAX: Duration = Duration::from_secs(60);

/// What there is to tell of it.
#[derive(Debug)]
pub enum Heard {
    /// The server has it.
    Taken,
    /// It is so far.
    At(JobProgress),
    /// It is over.
    Ended(Box<RunJobResult>),
    /// No more will be heard.
    Lost(Fault),
}

/// Hands `request` in and tells of it until it is over. Ends when nobody listens, too.
pub fn follow(remote: &Remote, request: &RunJobRequest, id: &JobId, heard: &Sender<Heard>) {
    let last = match submit(remote, request) {
        Ok(()) => {
            if heard.send(Heard::Taken).is_err() {
                return;
            }
            let mut following = Following { remote, id, heard, last_id: None, in_vain: 0 };
            following.until_over().map_or_else(Heard::Lost, Heard::Ended)
        }
        Err(fault) => Heard::Lost(fault),
    };
    let _ = heard.send(last);
}

/// Sent again with the same key, a request is still one job.
fn submit(remote: &Remote, request: &RunJobRequest) -> Result<(), Fault> {
    let key = JobId::random();
    let mut sent = 1;
    loop {
        match remote.submit(request, key.as_str()) {
            Err(Fault::Server(_)) if sent < SUBMITS_MAX => sent += 1,
            submitted => return submitted.map(drop),
        }
        thread::sleep(AGAIN_AFTER);
    }
}

struct Following<'a> {
    remote: &'a Remote,
    id: &'a JobId,
    heard: &'a Sender<Heard>,
    /// The last event's.
    last_id: Option<String>,
    /// How often there were no events at all, one time after the other.
    in_vain: u32,
}

impl Following<'_> {
    fn until_over(&mut self) -> Result<Box<RunJobResult>, Fault> {
        let mut answered = Instant::now();
        loop {
            if self.in_vain < LISTENS_MAX {
                match self.listen() {
                    0 => self.in_vain += 1,
                    _ => (self.in_vain, answered) = (0, Instant::now()),
                }
            }
            match self.remote.view(self.id) {
                Ok(JobView::Ended(result)) => return Ok(result),
                Ok(JobView::Live(live)) => {
                    answered = Instant::now();
                    self.tell_status(live.status);
                }
                // A server that starts again, and what stands before it meanwhile.
                Err(Fault::Server(_)) if answered.elapsed() < AWAY_MAX => {}
                Err(fault) => return Err(fault),
            }
            thread::sleep(AGAIN_AFTER);
        }
    }

    /// Tells of events until there are no more; how many there were.
    fn listen(&mut self) -> u64 {
        let Ok(body) = self.remote.listen(self.id, self.last_id.as_deref()) else { return 0 };
        let (mut events, mut count) = (Events::new(body), 0);
        let mut status = JobStatus::Running;
        while let Ok(Some(event)) = events.next() {
            count += 1;
            if event.id.is_some() {
                self.last_id.clone_from(&event.id);
            }
            status = event.status().unwrap_or(status);
            let (stdout_bytes, stderr_bytes) = event.offsets().unwrap_or_default();
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
        // Whoever listens no more has what it wants.
        let _ = self.heard.send(Heard::At(progress));
    }
}
