//! The supervisor's side of the way out: the proxy, in a network namespace that nothing else can enter.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};

use crate::case::cell::error::ExecError;
use crate::case::cell::host::container::engine::unavailable;
use crate::egress::EgressGrant;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{EGRESS_PORT, EgressService};
use cofferdam_sandbox::engine::listener_in;

/// How long a connection to the proxy may take to be made.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// The proxy of one command. Dropped, it closes.
#[derive(Debug)]
pub(in crate::case::cell::host::container) struct WayOut {
    asks: Sender<SyncSender<io::Result<TcpStream>>>,
    _served: Retained,
}

impl WayOut {
    /// The way out that `grant` allows. The proxy is in a new network namespace, so that no other program of this
    /// host can use it.
    ///
    /// # Errors
    /// The grant has hosts with rules, the namespace cannot be made, or the proxy cannot start.
    pub(in crate::case::cell::host::container) fn of(
        grant: &EgressGrant,
    ) -> Result<Self, ExecError> {
        let service = grant.service();
        if service.shows_files() {
            return Err(unavailable("a command in a container cannot reach hosts with rules"));
        }
        let opened = Self::open(service.as_ref());
        opened.map_err(|error| unavailable(&format!("the proxy does not start: {error}")))
    }

    fn open(service: &dyn EgressService) -> io::Result<Self> {
        let (asks, asked) = channel();
        let (opened, opens) = sync_channel(1);
        let connect = move || connect_in_namespace(&opened, &asked);
        Builder::new().name("egress-relay".to_owned()).spawn(connect)?;
        let namespace = opens.recv_timeout(CONNECT_WAIT).map_err(io::Error::other)??;
        let served = service.serve(listener_in(namespace.as_fd())?)?;
        Ok(Self { asks, _served: served })
    }

    /// A connection to the proxy.
    ///
    /// # Errors
    /// It cannot be made.
    pub(in crate::case::cell::host::container) fn connect(&self) -> io::Result<TcpStream> {
        let (answer, answers) = sync_channel(1);
        self.asks.send(answer).map_err(io::Error::other)?;
        answers.recv_timeout(CONNECT_WAIT * 2).map_err(io::Error::other)?
    }
}

/// Makes connections in a namespace of this thread, until every sender of requests is dropped.
fn connect_in_namespace(
    opened: &SyncSender<io::Result<File>>,
    asked: &Receiver<SyncSender<io::Result<TcpStream>>>,
) {
    let namespace = unshare(CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
    let namespace = namespace.and_then(|()| File::open("/proc/thread-self/ns/net"));
    let is_open = namespace.is_ok();
    if opened.send(namespace).is_err() || !is_open {
        return;
    }
    let proxy = SocketAddr::from((Ipv4Addr::LOCALHOST, EGRESS_PORT));
    while let Ok(answer) = asked.recv() {
        // The caller may have timed out.
        let _ = answer.send(TcpStream::connect_timeout(&proxy, CONNECT_WAIT));
    }
}
