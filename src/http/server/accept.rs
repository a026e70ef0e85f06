//! Listener sockets and their accept loops.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use nix::sys::socket::{Backlog, listen};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::connection;
use super::in_flight::InFlight;
use super::limits::HttpLimits;
use super::response_budget::ResponseBudget;
use crate::http::metrics::counts::HttpCounts;
use crate::http::request_log::ErrorLog;

/// Connections the kernel keeps for us until we accept them.
const BACKLOG_CONNECTIONS: i32 = 1024;
/// How long accepting rests after a failure such as descriptor exhaustion.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Between two log lines about failing accepts.
const ACCEPT_LOG_EVERY: Duration = Duration::from_secs(5);

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {source}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// Why not.
    pub source: io::Error,
}

pub fn bound(address: SocketAddr) -> Result<TcpListener, BindError> {
    let bind = || -> io::Result<TcpListener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        listen(&listener, Backlog::new(BACKLOG_CONNECTIONS)?)?;
        Ok(listener)
    };
    bind().map_err(|source| BindError { address, source })
}

/// The same listener for `runtime`: a socket joins the one it is made in.
pub fn joining(runtime: &Runtime, listener: &TcpListener) -> io::Result<tokio::net::TcpListener> {
    let _entered = runtime.enter();
    tokio::net::TcpListener::from_std(listener.try_clone()?)
}

/// What a listener serves.
pub struct Listener {
    pub router: Router,
    pub connections_max: usize,
    pub limits: Arc<HttpLimits>,
    pub in_flight: InFlight,
    pub counts: Arc<HttpCounts>,
}

/// Accepts for ever. No failure ends it: a client that has gone again costs
/// nothing, and want of descriptors passes.
pub async fn accept(listener: tokio::net::TcpListener, serves: Listener) {
    let Listener { router, connections_max, limits, in_flight, counts } = serves;
    let responses = ResponseBudget::new(limits.unread_bytes_max);
    let error_log = Arc::new(ErrorLog::default());
    let places = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    let mut logged: Option<Instant> = None;
    // The semaphore is never closed, so this loop never ends.
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((socket, _)) => {
                // Here and not in its own task, which begins some time.
                let counted = counts.enter();
                let serving = connection::serve(
                    socket,
                    router.clone(),
                    limits.clone(),
                    in_flight.clone(),
                    responses.clone(),
                    Arc::clone(&counts),
                    Arc::clone(&error_log),
                );
                tokio::spawn(async move {
                    serving.await;
                    drop((counted, place));
                });
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if logged.is_none_or(|at| at.elapsed() >= ACCEPT_LOG_EVERY) {
                    log::warn!("accept: {error}; trying again");
                    logged = Some(Instant::now());
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
