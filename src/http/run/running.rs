//! A run on its own thread, and how a request waits for it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::threads::RunThreads;
use crate::config::OnDisconnect;
use crate::http::error::HttpError;
use crate::http::server::connection::ClientSocket;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{SetupFailure, Watch};

/// A live run. Dropping it early cancels the run, unless runs outlive their clients.
#[derive(Debug)]
pub struct RunningTask<T> {
    result: oneshot::Receiver<Result<T, HttpError>>,
    cancel_on_drop: Option<CancelToken>,
}

impl<T: Send + 'static> RunningTask<T> {
    /// Runs `run` for `client` on a thread of `threads`. It admits the request, which can read files
    /// and so stays off the threads that answer probes, and converts the report, since large reports
    /// take time.
    ///
    /// # Errors
    /// The run could not be started, for a reason that `failed` makes an error of.
    pub fn start(
        threads: &RunThreads,
        client: &ClientSocket,
        on_disconnect: OnDisconnect,
        failed: impl Fn(&SetupFailure) -> HttpError,
        run: impl FnOnce(Watch) -> Result<T, HttpError> + Send + 'static,
    ) -> Result<Self, HttpError> {
        let failed = |step, error: &std::io::Error| failed(&SetupFailure::from_io(step, error));
        let cancel = CancelToken::new().map_err(|error| failed("eventfd", &error))?;
        let (watched, cancel_on_drop) = match on_disconnect {
            OnDisconnect::Finish => (None, None),
            OnDisconnect::Kill => {
                let socket = client.duplicate().map_err(|error| failed("client socket", &error))?;
                (Some(socket), Some(cancel.clone()))
            }
        };
        let watch = Watch { client: watched, ..Watch::of(cancel) };
        let (sender, result) = oneshot::channel();
        // The receiver is gone if the client has disconnected.
        let started = threads.start(move || drop(sender.send(run(watch))));
        started.map_err(|error| failed("thread", &error))?;
        Ok(Self { result, cancel_on_drop })
    }

    /// Waits for the end of the run.
    pub async fn result(mut self) -> Result<T, HttpError> {
        poll_fn(|cx| self.poll_result(cx)).await
    }

    /// Polls for the result; see [`RunningTask::result`].
    pub fn poll_result(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, HttpError>> {
        Pin::new(&mut self.result).poll(cx).map(|ended| {
            self.cancel_on_drop = None;
            ended.unwrap_or_else(|_| {
                log::error!("a run's thread ended without a report");
                Err(HttpError::Internal)
            })
        })
    }
}

impl<T> Drop for RunningTask<T> {
    fn drop(&mut self) {
        if let Some(cancel) = &self.cancel_on_drop {
            cancel.cancel();
        }
    }
}
