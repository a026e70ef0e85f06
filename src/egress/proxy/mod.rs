//! The forward proxy of one sandbox or workspace: one thread with a runtime of its own, so that closing
//! it leaves nothing behind and the tenants' proxies share the processors as their threads do.

mod body;
mod connection;
mod context;
mod headers;
mod metered;
mod plain;
mod refusal;
mod ruled;
#[cfg(test)]
mod tests;
mod upstream;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tokio::net;
use tokio::runtime::{self, Runtime};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

use self::connection::activity::run_until;
use self::connection::client::ClientService;
use self::context::{ProxyContext, ProxyLimits, UpstreamTls};
pub use self::upstream::is_of_this_host;
use super::log::EgressLog;
use super::policy::EgressPolicy;
use super::resolver::{Lookups, Resolve, SystemResolver};
use super::roots::UpstreamRoots;
use super::trust::SandboxTrust;
use cofferdam_core::weakened::{self, Wall};

/// Connections beyond the limit that are read to be refused; more wait in the kernel's queue.
const SURPLUS_MAX: usize = 8;
/// The pause after a failed accept, for example when descriptors run out.
const EGRESS_ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a proxy serves by.
#[derive(Debug)]
pub struct ProxyTerms {
    pub policy: EgressPolicy,
    /// Where records go.
    pub log: Arc<EgressLog>,
    /// By whose certificates the proxy speaks for hosts with rules.
    pub trust: Arc<SandboxTrust>,
    /// What hosts with rules are verified by.
    pub roots: UpstreamRoots,
    /// Whether records have paths.
    pub keeps_paths: bool,
}

/// A proxy that serves one sandbox or workspace. Dropping it ends all of its connections.
#[derive(Debug)]
pub struct EgressProxy {
    /// Dropped to stop the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl EgressProxy {
    /// Serves every connection to `listener` under `terms`. The proxy connects in the network namespace of
    /// the caller, wherever `listener` was made.
    pub fn serve(listener: TcpListener, terms: ProxyTerms) -> io::Result<Self> {
        Self::serve_with(listener, terms, ProxyLimits::default(), Arc::new(SystemResolver))
    }

    /// The same with other limits and another resolver.
    fn serve_with(
        listener: TcpListener,
        terms: ProxyTerms,
        limits: ProxyLimits,
        resolver: Arc<dyn Resolve>,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            net::TcpListener::from_std(listener)?
        };
        let ProxyTerms { policy, log, trust, roots, keeps_paths } = terms;
        let context = Arc::new(ProxyContext {
            policy,
            log,
            limits,
            lookups: Lookups::new(resolver),
            requests: Arc::new(Semaphore::new(limits.requests_max)),
            trust,
            tls: UpstreamTls::new(roots),
            keeps_paths,
        });
        let (stop, stopped) = oneshot::channel();
        let serve = move || run(runtime, listener, context, stopped);
        let thread = Builder::new().name("egress".to_owned()).spawn(serve)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Ends all connections and waits until nothing of the proxy is left.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for EgressProxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}

/// Serves until `stopped`. The connections end with the runtime.
fn run(
    runtime: Runtime,
    listener: net::TcpListener,
    context: Arc<ProxyContext>,
    stopped: oneshot::Receiver<()>,
) {
    let stopped = async { drop(stopped.await) };
    runtime.block_on(run_until(stopped, accept(listener, context)));
    drop(runtime);
}

async fn accept(listener: net::TcpListener, context: Arc<ProxyContext>) {
    let connections_max = match weakened::lacks(Wall::Tally) {
        true => Semaphore::MAX_PERMITS,
        false => context.limits.connections_max,
    };
    let permits = Arc::new(Semaphore::new(connections_max));
    let surplus_permits = Arc::new(Semaphore::new(SURPLUS_MAX));
    loop {
        let surplus = Arc::clone(&surplus_permits).acquire_owned().await;
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    sleep(EGRESS_ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        let permit = Arc::clone(&permits).try_acquire_owned();
        let service = ClientService::new(Arc::clone(&context), permit.is_err());
        let surplus = surplus.ok().filter(|_| permit.is_err());
        tokio::spawn(async move {
            service.serve(socket).await;
            drop((permit, surplus));
        });
    }
}
