//! The supervisor's side of the way out: the proxy, in a network namespace that nothing else can enter.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
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

/// Where a container shows the certificates of those whom its commands trust: the directory of the files that the
/// variables of a way out with rules name.
pub(in crate::case::cell::host::container) const TRUST_DIRECTORY: &str = "/run/cofferdam";

/// The proxy of one command. Dropped, it closes.
#[derive(Debug)]
pub(in crate::case::cell::host::container) struct WayOut {
    asks: Sender<SyncSender<io::Result<TcpStream>>>,
    trusted: Vec<TrustedFile>,
    _served: Retained,
}

/// A file in [`TRUST_DIRECTORY`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::case::cell::host::container) struct TrustedFile {
    pub(in crate::case::cell::host::container) name: OsString,
    pub(in crate::case::cell::host::container) contents: Vec<u8>,
}

impl WayOut {
    /// The way out that `grant` allows. The proxy is in a new network namespace, so that no other program of this
    /// host can use it. Hosts with rules need certificates that programs trust: files are made in `base` of those that the
    /// container has, of whose files `read` returns the text.
    ///
    /// # Errors
    /// The files or the namespace cannot be made, or the proxy cannot start.
    pub(in crate::case::cell::host::container) fn of(
        grant: &EgressGrant,
        base: &Path,
        read: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ExecError> {
        let service = grant.service();
        let trusted = trusted_files(service.as_ref(), base, read);
        let opened = trusted.and_then(|trusted| Self::open(service.as_ref(), trusted));
        opened.map_err(|error| unavailable(&format!("the proxy does not start: {error}")))
    }

    fn open(service: &dyn EgressService, trusted: Vec<TrustedFile>) -> io::Result<Self> {
        let (asks, asked) = channel();
        let (opened, opens) = sync_channel(1);
        let connect = move || connect_in_namespace(&opened, &asked);
        Builder::new().name("egress-relay".to_owned()).spawn(connect)?;
        let namespace = opens.recv_timeout(CONNECT_WAIT).map_err(io::Error::other)??;
        let served = service.serve(listener_in(namespace.as_fd())?)?;
        Ok(Self { asks, trusted, _served: served })
    }

    /// The certificates of those whom its commands trust besides those that they know.
    pub(in crate::case::cell::host::container) fn trusted(&self) -> &[TrustedFile] {
        &self.trusted
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

/// The files of `service` that a container shows. Those in the place of the image's are left out: variables name ours.
fn trusted_files(
    service: &dyn EgressService,
    base: &Path,
    read: &dyn Fn(&str) -> Option<String>,
) -> io::Result<Vec<TrustedFile>> {
    let shown = service.shown_files(base, &|path| read(path).map(String::into_bytes))?;
    let ours = shown.into_iter().filter_map(|file| {
        let name =
            Path::new(file.target).strip_prefix(TRUST_DIRECTORY).ok()?.as_os_str().to_owned();
        Some(fs::read(file.source).map(|contents| TrustedFile { name, contents }))
    });
    ours.collect()
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
