//! Network namespaces: created ahead, used by one sandbox at a time, and reused only if no sandbox has
//! left a trace in them.
//!
//! To create and destroy one is the most expensive part of a sandbox. A tenant without capabilities
//! over a namespace can leave something in it only through its sockets. So a namespace without
//! sockets, through whose `lo`, its only interface, no packet has ever gone, is as new. The pool
//! checks that with the kernel's own counters, which must all equal those of a namespace that was
//! never used.

use std::fs::File;
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;

use crate::pool::egress_listener::listener_in;
use crate::sys;
use cofferdam_core::SetupFailure;

/// The most that are kept ready; one takes about 100 KiB of kernel memory.
const FREE_MAX: usize = 32;
/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";
/// More than all of the files have together.
const COUNTERS_BYTES: usize = 32 << 10;
/// The files below `/proc/thread-self/net` that show existing sockets. Of the first, all lines after
/// the first one are about the host. A kernel without one of these files has no such sockets.
const SOCKETS: [&str; 2] = ["sockstat", "unix"];
/// The files that show traces of earlier sockets, except Unix ones.
const TRACES: [&str; 13] = [
    "sockstat6",
    "dev",
    "snmp",
    "snmp6",
    "netstat",
    "ip6_flowlabel",
    "igmp",
    "igmp6",
    "mcfilter",
    "mcfilter6",
    "arp",
    "if_inet6",
    "ipv6_route",
];

/// A network namespace with only a `lo` that is up, used by one owner.
#[derive(Debug)]
pub struct NetNamespace {
    namespace: OwnedFd,
    /// Whether it is known that no socket except Unix ones was created in it since it was taken.
    had_no_socket: bool,
    /// Whether it had a socket of ours, and so is used once.
    had_egress: bool,
}

impl NetNamespace {
    fn new(namespace: OwnedFd) -> Self {
        Self { namespace, had_no_socket: false, had_egress: false }
    }

    /// Records that no socket except Unix ones was created in the namespace, so that
    /// [`NetNamespaces::give_back`] need not check for traces of others.
    pub fn had_no_socket(&mut self) {
        self.had_no_socket = true;
    }

    /// Listens on the egress port of the namespace.
    pub fn listen(&mut self) -> io::Result<TcpListener> {
        self.had_egress = true;
        listener_in(self.namespace.as_fd())
    }
}

/// The content of [`SOCKETS`] and [`TRACES`].
#[derive(Debug, Default, PartialEq, Eq)]
struct NetCounters {
    sockets: Vec<u8>,
    traces: Vec<u8>,
}

/// The pool of network namespaces.
#[derive(Debug)]
pub struct NetNamespaces {
    host: File,
    state: Mutex<FreeNamespaces>,
}

#[derive(Debug, Default)]
struct FreeNamespaces {
    free: Vec<NetNamespace>,
    /// Receives a namespace that another thread creates for the first caller of `take`.
    prefetched: Option<Receiver<Result<NetNamespace, SetupFailure>>>,
    /// How many to keep, free or taken.
    kept: usize,
    /// The counters of a namespace that was never used; empty until one was created.
    pristine: Arc<NetCounters>,
}

impl NetNamespaces {
    /// An empty pool.
    pub fn open() -> io::Result<Self> {
        Ok(Self { host: File::open(OWN)?, state: Mutex::default() })
    }

    /// Creates `count` ahead, at most [`FREE_MAX`], and keeps as many from now on.
    pub fn keep(&self, count: usize) -> Result<(), SetupFailure> {
        let count = count.min(FREE_MAX);
        let (first, pristine) = self.make_and(counters).map_err(|error| failed(&error))?;
        {
            let mut state = self.lock();
            (state.kept, state.pristine) = (count, pristine.into());
        }
        // The first one only provides the counters.
        drop(first);
        for _ in 0..count {
            let made = self.make()?;
            self.lock().free.push(made);
        }
        Ok(())
    }

    /// Reserves a namespace for the first caller of `take`: the returned closure creates it, on
    /// another thread. If the closure is dropped instead, that caller creates it.
    pub fn prefetch_one(self: &Arc<Self>) -> impl FnOnce() + Send + 'static {
        let (sender, prefetched) = channel();
        self.lock().prefetched = Some(prefetched);
        let namespaces = Arc::clone(self);
        move || {
            // If the pool is gone, the namespace is dropped with the channel.
            let _ = sender.send(namespaces.make());
        }
    }

    /// Takes one for a single owner.
    pub fn take(&self) -> Result<NetNamespace, SetupFailure> {
        let (free, prefetched) = {
            let mut state = self.lock();
            (state.free.pop(), state.prefetched.take())
        };
        let made = || prefetched.and_then(|one| one.recv().ok()).unwrap_or_else(|| self.make());
        free.map_or_else(made, Ok)
    }

    /// Takes back one without live processes. It is reused if it has no trace of use, and replaced
    /// otherwise.
    pub fn give_back(&self, returned: NetNamespace) {
        let pristine = {
            let state = self.lock();
            if state.kept == 0 {
                return;
            }
            Arc::clone(&state.pristine)
        };
        let is_pristine = || -> io::Result<bool> {
            Ok(!returned.had_egress
                && read_all(&SOCKETS)? == pristine.sockets
                && (returned.had_no_socket || read_all(&TRACES)? == pristine.traces))
        };
        let free = match self.inside(&returned, is_pristine) {
            Ok(true) => Ok(NetNamespace::new(returned.namespace)),
            Ok(false) => self.make(),
            Err(error) => Err(failed(&error)),
        };
        match free {
            Ok(free) => {
                let mut state = self.lock();
                if state.free.len() < state.kept {
                    state.free.push(free);
                }
            }
            Err(failure) => log::warn!("{failure}"),
        }
    }

    fn make(&self) -> Result<NetNamespace, SetupFailure> {
        Ok(self.make_and(|| Ok(())).map_err(|error| failed(&error))?.0)
    }

    /// Creates one on this thread, which stays in it while `look` runs.
    fn make_and<T>(&self, look: impl FnOnce() -> io::Result<T>) -> io::Result<(NetNamespace, T)> {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let made = || {
            sys::raise_loopback()?;
            Ok((NetNamespace::new(File::open(OWN)?.into()), look()?))
        };
        let made = made();
        self.leave()?;
        made
    }

    fn inside<T>(
        &self,
        namespace: &NetNamespace,
        look: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        setns(&namespace.namespace, CloneFlags::CLONE_NEWNET)?;
        let seen = look();
        self.leave()?;
        seen
    }

    /// Returns to the server's namespace.
    fn leave(&self) -> io::Result<()> {
        Ok(setns(&self.host, CloneFlags::CLONE_NEWNET)?)
    }

    fn lock(&self) -> MutexGuard<'_, FreeNamespaces> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for NetNamespace {
    fn as_raw_fd(&self) -> RawFd {
        self.namespace.as_raw_fd()
    }
}

fn failed(error: &io::Error) -> SetupFailure {
    SetupFailure::from_io("net namespace", error)
}

/// Reads the counters of this thread's namespace.
fn counters() -> io::Result<NetCounters> {
    Ok(NetCounters { sockets: read_all(&SOCKETS)?, traces: read_all(&TRACES)? })
}

fn read_all(names: &[&str]) -> io::Result<Vec<u8>> {
    let directory = File::open("/proc/thread-self/net")?;
    let mut all = Vec::with_capacity(COUNTERS_BYTES);
    let mut buffer = vec![0; COUNTERS_BYTES];
    for name in names {
        let begun = all.len();
        // Relative to the directory: the path from the root to it takes most of the time of an open.
        match openat(&directory, *name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) {
            Err(Errno::ENOENT) => {}
            file => read_on(&mut File::from(file?), &mut buffer, &mut all)?,
        }
        if *name == SOCKETS[0] {
            let line = all.iter().skip(begun).position(|byte| *byte == b'\n');
            all.truncate(begun + line.unwrap_or(0));
        }
    }
    Ok(all)
}

/// Appends the whole file in as few calls as possible.
fn read_on(file: &mut File, buffer: &mut [u8], all: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let count = file.read(buffer)?;
        if count == 0 {
            return Ok(());
        }
        all.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use super::*;

    /// Whether a namespace in which `used` ran is taken again.
    fn is_reused(namespaces: &NetNamespaces, used: impl FnOnce() -> io::Result<()>) -> bool {
        is_reused_after(namespaces, false, used)
    }

    fn is_reused_after(
        namespaces: &NetNamespaces,
        no_socket: bool,
        used: impl FnOnce() -> io::Result<()>,
    ) -> bool {
        let mut taken = namespaces.take().unwrap();
        if no_socket {
            taken.had_no_socket();
        }
        let taken_as = inode(&taken);
        namespaces.inside(&taken, used).unwrap();
        namespaces.give_back(taken);
        let free = namespaces.lock().free.len();
        assert_eq!(free, 1, "it was not replaced");
        let next = namespaces.take().unwrap();
        let again = inode(&next) == taken_as;
        namespaces.lock().free.push(next);
        again
    }

    fn inode(namespace: &NetNamespace) -> u64 {
        nix::sys::stat::fstat(&namespace.namespace).unwrap().st_ino
    }

    fn is_root() -> bool {
        let is_root = nix::unistd::geteuid().is_root();
        if !is_root {
            let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
            assert!(!required, "not root, and REQUIRE_PRIVILEGED=1");
            eprintln!("SKIP: not root");
        }
        is_root
    }

    #[test]
    fn the_egress_port_is_ours_while_it_listens_and_its_namespace_is_used_once() {
        if !is_root() {
            return;
        }
        let namespaces = NetNamespaces::open().unwrap();
        namespaces.keep(1).unwrap();
        let mut taken = namespaces.take().unwrap();
        let taken_as = inode(&taken);
        let listener = taken.listen().unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(address.to_string(), format!("127.0.0.1:{}", cofferdam_core::EGRESS_PORT));
        let bind = || {
            for taken in [address, (std::net::Ipv4Addr::UNSPECIFIED, address.port()).into()] {
                assert!(TcpListener::bind(taken).is_err(), "{taken} was free");
            }
            TcpStream::connect(address).map(drop)
        };
        namespaces.inside(&taken, bind).unwrap();
        assert!(listener.accept().is_ok());
        assert!(taken.listen().is_err(), "a second one");
        drop(listener);
        namespaces.give_back(taken);
        assert_ne!(inode(&namespaces.take().unwrap()), taken_as);
    }

    #[test]
    fn a_namespace_is_reused_only_without_a_trace_of_use() {
        if !is_root() {
            return;
        }
        let namespaces = NetNamespaces::open().unwrap();
        namespaces.keep(1).unwrap();
        let wait = || {
            std::thread::sleep(Duration::from_millis(300));
            Ok(())
        };
        assert!(is_reused(&namespaces, wait), "time alone changes it");
        let open_and_close = || UdpSocket::bind("127.0.0.1:0").map(drop);
        assert!(is_reused(&namespaces, open_and_close));
        let unix = || UnixDatagram::unbound().map(drop);
        assert!(is_reused(&namespaces, unix));
        let send = || {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.send_to(b"x", socket.local_addr()?).map(drop)
        };
        assert!(!is_reused(&namespaces, send), "a packet was sent");
        let connect = || {
            let listener = TcpListener::bind("[::1]:0")?;
            TcpStream::connect(listener.local_addr()?).map(drop)
        };
        assert!(!is_reused(&namespaces, connect), "there was a connection");
        let refused = || {
            let refused = TcpStream::connect("127.0.0.1:9");
            assert!(refused.is_err());
            Ok(())
        };
        assert!(!is_reused(&namespaces, refused), "a connection was refused");
        let mut left = None;
        let leave = || {
            left = Some(UdpSocket::bind("127.0.0.1:0")?);
            Ok(())
        };
        assert!(!is_reused(&namespaces, leave), "a socket is left");
        let mut left = None;
        let leave = || {
            left = Some(UnixDatagram::unbound()?);
            Ok(())
        };
        assert!(!is_reused_after(&namespaces, true, leave), "a Unix socket is left");
        assert!(is_reused_after(&namespaces, true, || Ok(())));
        assert!(!is_reused(&namespaces, send), "what is known of one holds for the next");
    }
}
