//! Ends and cancels runs.

use super::admission::INPUT;
use super::live::LiveRun;
use super::shared::{Shared, now_text, words_of};
use super::state::Phase;
use crate::case::service::api::{CancelledCaseRun, CaseRunFault, CaseRunStatus};
use crate::case::service::error::CaseRunsError;
use crate::case::service::record::ServiceFile;

impl Shared {
    /// Ends `live`, which is in [`Phase::Ending`]: nothing of it runs.
    pub(super) fn end(&self, live: &LiveRun) {
        live.drop_runner();
        let fault = live.report().err().map(|error| CaseRunFault {
            code: "case.store_failed".to_owned(),
            message: words_of(&error),
        });
        let Some(mut ended) = self.state().file(&live.id).cloned() else { return };
        ended.error = ended.error.or(fault);
        ended.finished_at = Some(now_text());
        ended.status =
            if ended.is_canceling { CaseRunStatus::Canceled } else { CaseRunStatus::Done };
        live.events().end(&ended.view());
        let saved = live.save(|| Some(ended.clone()));
        let removed = if ended.is_uploaded { live.run.remove_file(INPUT) } else { Ok(()) };
        for error in [saved, removed].into_iter().filter_map(Result::err) {
            log::error!(run = live.id.as_str(), reason = error.to_string(); "run not ended on disk");
        }
        self.forget_live(ended);
        live.events().close();
        self.changed.notify_all();
    }

    fn forget_live(&self, ended: ServiceFile) {
        let mut state = self.state();
        match ended.status {
            CaseRunStatus::Canceled => state.totals.runs_canceled_total += 1,
            _ => state.totals.runs_done_total += 1,
        }
        let entry = state.live.remove(&ended.order);
        if let Some(file) = state.file_mut(&ended.run_id) {
            *file = ended;
        }
        drop(state);
        // May be the last one, which closes files.
        drop(entry);
    }

    /// Cancels a run.
    pub fn cancel_run(&self, owner: &str, id: &str) -> Result<CancelledCaseRun, CaseRunsError> {
        let run_id = id.to_owned();
        let (live, ends) = {
            let mut state = self.state();
            let status = state.of(owner, id)?.status;
            if status.has_ended() {
                return Ok(CancelledCaseRun { run_id, status, had_ended: true });
            }
            let Some(entry) = state.live_of(id) else { return Err(CaseRunsError::NotFound) };
            if entry.phase == Phase::Ending {
                return Ok(CancelledCaseRun { run_id, status, had_ended: false });
            }
            let (ends, live) = (entry.ends_early(), std::sync::Arc::clone(&entry.run));
            if let Some(file) = state.file_mut(id) {
                file.is_canceling = true;
            }
            live.stop.cancel();
            (live, ends)
        };
        if ends {
            self.end(&live);
        } else {
            // A run that is being canceled is not resumed by the next service.
            self.save(&live);
        }
        let status = self.state().of(owner, id).map_or(CaseRunStatus::Canceled, |file| file.status);
        Ok(CancelledCaseRun { run_id, status, had_ended: false })
    }
}
