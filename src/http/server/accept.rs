//! Listening sockets and their accept loops.

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
use super::limits::HttpLimits;
use super::response_budget::ResponseBudget;
use crate::http::metrics::counts::HttpCounts;
use crate::http::request::log::ErrorLog;
use cofferdam_core::sync::in_flight::InFlight;

/// The kernel's queue of connections that are not accepted yet.
const BACKLOG_CONNECTIONS: i32 = 1024;
/// The pause after a failed accept, for example when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The interval between log lines about failed accepts.
const ACCEPT_LOG_EVERY: Duration = Duration::from_secs(5);

/// Listening on an address failed.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {source}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The cause.
    pub source: io::Error,
}

pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let open = || -> io::Result<TcpListener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        listen(&listener, Backlog::new(BACKLOG_CONNECTIONS)?)?;
        Ok(listener)
    };
    open().map_err(|source| BindError { address, source })
}

/// Clones `listener` into `runtime`, which a socket joins when it is created.
pub fn into_tokio(
    runtime: &Runtime,
    listener: &TcpListener,
) -> io::Result<tokio::net::TcpListener> {
    let _entered = runtime.enter();
    tokio::net::TcpListener::from_std(listener.try_clone()?)
}

/// What an accept loop needs.
pub struct Listener {
    pub router: Router,
    pub connections_max: usize,
    pub limits: Arc<HttpLimits>,
    pub in_flight: InFlight,
    pub counts: Arc<HttpCounts>,
}

/// Accepts connections for as long as the process lives. A client that has already left costs
/// nothing, and running out of descriptors is temporary.
pub async fn accept(listener: tokio::net::TcpListener, listening: Listener) {
    let Listener { router, connections_max, limits, in_flight, counts } = listening;
    let responses = ResponseBudget::new(limits.unread_bytes_max);
    let error_log = Arc::new(ErrorLog::default());
    let permits = Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS)));
    let mut logged: Option<Instant> = None;
    // The semaphore is never closed, so the loop does not end.
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        match listener.accept().await {
            Ok((socket, _)) => {
                // Counted here because the connection's task starts later.
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
                    drop((counted, permit));
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
