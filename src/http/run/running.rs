//! A run on its own thread, and how a request waits for it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::threads::RunThreads;
use crate::check::run::{CheckError, CheckReport};
use crate::config::OnDisconnect;
use crate::http::checks::RunCheck;
use crate::http::error::HttpError;
use crate::http::server::connection::ClientSocket;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{OutputSink, SetupFailure, Watch};

/// A live run. Dropping it early cancels the run, unless runs outlive their clients.
#[derive(Debug)]
pub struct RunningCheck<T> {
    report: oneshot::Receiver<Result<T, CheckError>>,
    cancel_on_drop: Option<CancelToken>,
}

impl<T: Send + 'static> RunningCheck<T> {
    /// Admits and runs a check for `client` on a thread of `threads`. Admission can read a
    /// workspace again, so it stays off the threads that answer probes. `make` converts the report
    /// on the same thread, because large reports take time.
    pub fn start(
        threads: &RunThreads,
        admit: impl FnOnce() -> Result<RunCheck, CheckError> + Send + 'static,
        client: &ClientSocket,
        on_disconnect: OnDisconnect,
        sink: Option<Box<dyn OutputSink>>,
        make: impl FnOnce(CheckReport) -> T + Send + 'static,
    ) -> Result<Self, CheckError> {
        let failed = |step: &'static str| {
            move |error| CheckError::Sandbox(SetupFailure::from_io(step, &error))
        };
        let cancel = CancelToken::new().map_err(failed("eventfd"))?;
        let (watched, cancel_on_drop) = match on_disconnect {
            OnDisconnect::Finish => (None, None),
            OnDisconnect::Kill => {
                let socket = client.duplicate().map_err(failed("client socket"))?;
                (Some(socket), Some(cancel.clone()))
            }
        };
        let watch = Watch { cancel, client: watched };
        let (sender, report) = oneshot::channel();
        let run = move || admit().and_then(|check| check(watch, sink)).map(make);
        // The receiver is gone if the client has disconnected.
        threads.start(move || drop(sender.send(run()))).map_err(failed("thread"))?;
        Ok(Self { report, cancel_on_drop })
    }

    /// Waits for the end of the run.
    pub async fn report(mut self) -> Result<T, HttpError> {
        poll_fn(|cx| self.poll_report(cx)).await
    }

    /// Polls for the report; see [`RunningCheck::report`].
    pub fn poll_report(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, HttpError>> {
        Pin::new(&mut self.report).poll(cx).map(|ended| {
            self.cancel_on_drop = None;
            match ended {
                Ok(report) => report.map_err(HttpError::Check),
                Err(_) => {
                    log::error!("a run's thread ended without a report");
                    Err(HttpError::Internal)
                }
            }
        })
    }
}

impl<T> Drop for RunningCheck<T> {
    fn drop(&mut self) {
        if let Some(cancel) = &self.cancel_on_drop {
            cancel.cancel();
        }
    }
}
