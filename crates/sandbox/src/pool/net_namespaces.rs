//! Network namespaces: made ahead, each one box's at a time, and kept for another
//! only if nothing tells that anybody has used it.
//!
//! Making one and taking it down is the dearest part of a box. What a tenant
//! could leave in one without a capability over it is what its sockets leave: so
//! one in which no socket is left and through whose `lo`, the only way there is,
//! no packet has ever gone, is as it was made. Whether that is so is read from
//! the kernel's own counters, all of which have to be what they are in one that
//! was never lent.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;

use crate::sys;
use cofferdam_core::SetupFailure;

/// The most that are kept for boxes to come; one takes about 100 KiB of the kernel's memory.
const FREE_MAX: usize = 32;
/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";
/// More than any of them has, or all together.
const COUNTERS_BYTES: usize = 32 << 10;
/// What tells of sockets that are left, below `/proc/thread-self/net`. Of the first, what follows its
/// first line is the host's. A kernel without one of these files has nothing there to tell.
const SOCKETS: [&str; 2] = ["sockstat", "unix"];
/// What tells of sockets that there ever were but Unix ones.
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

/// A network namespace with nothing but a `lo` that is up, nobody else's.
#[derive(Debug)]
pub struct NetNamespace {
    namespace: OwnedFd,
    /// Whether it is known that no socket except Unix ones was created in it since it was lent.
    had_no_socket: bool,
}

impl NetNamespace {
    fn new(namespace: OwnedFd) -> Self {
        Self { namespace, had_no_socket: false }
    }

    /// Records that no socket except Unix ones was created in the namespace, so that
    /// [`NetNamespaces::give_back`] need not check for traces of others.
    pub fn had_no_socket(&mut self) {
        self.had_no_socket = true;
    }
}

/// What [`SOCKETS`] and [`TRACES`] say.
#[derive(Debug, Default, PartialEq, Eq)]
struct NetCounters {
    sockets: Vec<u8>,
    traces: Vec<u8>,
}

/// Those that are free.
#[derive(Debug)]
pub struct NetNamespaces {
    host: File,
    state: Mutex<FreeNamespaces>,
}

#[derive(Debug, Default)]
struct FreeNamespaces {
    free: Vec<NetNamespace>,
    /// Where one comes from that another thread makes for whoever takes the first.
    prefetched: Option<Receiver<Result<NetNamespace, SetupFailure>>>,
    /// How many are to be free or lent.
    kept: usize,
    /// What there is in one that was never lent; empty until one was made.
    pristine: Arc<NetCounters>,
}

impl NetNamespaces {
    /// None yet.
    pub fn open() -> io::Result<Self> {
        Ok(Self { host: File::open(OWN)?, state: Mutex::default() })
    }

    /// Makes `count` ahead, as far as that is sensible, and keeps as many from now on.
    pub fn keep(&self, count: usize) -> Result<(), SetupFailure> {
        let count = count.min(FREE_MAX);
        let (first, pristine) = self.make_and(counters).map_err(|error| failed(&error))?;
        {
            let mut state = self.lock();
            (state.kept, state.pristine) = (count, pristine.into());
        }
        // What is compared with is not lent.
        drop(first);
        for _ in 0..count {
            let made = self.make()?;
            self.lock().free.push(made);
        }
        Ok(())
    }

    /// Promises one to whoever takes the first: what is returned makes it, on another thread. If
    /// it is dropped instead, whoever takes the first makes it.
    pub fn prefetch_one(self: &Arc<Self>) -> impl FnOnce() + Send + 'static {
        let (sender, prefetched) = channel();
        self.lock().prefetched = Some(prefetched);
        let namespaces = Arc::clone(self);
        move || {
            // One that nobody takes any more goes with the channel.
            let _ = sender.send(namespaces.make());
        }
    }

    /// One that nobody else has.
    pub fn take(&self) -> Result<NetNamespace, SetupFailure> {
        let (free, prefetched) = {
            let mut state = self.lock();
            (state.free.pop(), state.prefetched.take())
        };
        let made = || prefetched.and_then(|one| one.recv().ok()).unwrap_or_else(|| self.make());
        free.map_or_else(made, Ok)
    }

    /// Takes back one in which nothing is alive: for another box if nobody has
    /// used it, and otherwise to be replaced.
    pub fn give_back(&self, lent: NetNamespace) {
        let pristine = {
            let state = self.lock();
            if state.kept == 0 {
                return;
            }
            Arc::clone(&state.pristine)
        };
        let is_pristine = || -> io::Result<bool> {
            Ok(read_all(&SOCKETS)? == pristine.sockets
                && (lent.had_no_socket || read_all(&TRACES)? == pristine.traces))
        };
        let free = match self.inside(&lent, is_pristine) {
            Ok(true) => Ok(NetNamespace { had_no_socket: false, ..lent }),
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

    /// Makes one on this thread, which is in it for as long as `look` takes.
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

    /// Back to where the server is.
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

/// What the kernel says of the namespace this thread is in.
fn counters() -> io::Result<NetCounters> {
    Ok(NetCounters { sockets: read_all(&SOCKETS)?, traces: read_all(&TRACES)? })
}

fn read_all(names: &[&str]) -> io::Result<Vec<u8>> {
    let directory = File::open("/proc/thread-self/net")?;
    let mut all = Vec::with_capacity(COUNTERS_BYTES);
    let mut buffer = vec![0; COUNTERS_BYTES];
    for name in names {
        let begun = all.len();
        // Below the directory: the way from the root to there is most of what it takes to open one.
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

/// Appends the whole of a file in as few calls as there can be.
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

    /// Whether one in which `used` was done is lent again.
    fn is_lent_again(namespaces: &NetNamespaces, used: impl FnOnce() -> io::Result<()>) -> bool {
        is_lent_again_after(namespaces, false, used)
    }

    fn is_lent_again_after(
        namespaces: &NetNamespaces,
        no_socket: bool,
        used: impl FnOnce() -> io::Result<()>,
    ) -> bool {
        let mut lent = namespaces.take().unwrap();
        if no_socket {
            lent.had_no_socket();
        }
        let lent_as = inode(&lent);
        namespaces.inside(&lent, used).unwrap();
        namespaces.give_back(lent);
        let free = namespaces.lock().free.len();
        assert_eq!(free, 1, "it was not replaced");
        let next = namespaces.take().unwrap();
        let again = inode(&next) == lent_as;
        namespaces.lock().free.push(next);
        again
    }

    fn inode(namespace: &NetNamespace) -> u64 {
        nix::sys::stat::fstat(&namespace.namespace).unwrap().st_ino
    }

    #[test]
    fn a_namespace_is_lent_again_only_if_nobody_has_used_it() {
        if !nix::unistd::geteuid().is_root() {
            let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
            assert!(!required, "not root, and REQUIRE_PRIVILEGED=1");
            eprintln!("SKIP: not root");
            return;
        }
        let namespaces = NetNamespaces::open().unwrap();
        namespaces.keep(1).unwrap();
        let wait = || {
            std::thread::sleep(Duration::from_millis(300));
            Ok(())
        };
        assert!(is_lent_again(&namespaces, wait), "time alone changes it");
        let open_and_close = || UdpSocket::bind("127.0.0.1:0").map(drop);
        assert!(is_lent_again(&namespaces, open_and_close));
        let unix = || UnixDatagram::unbound().map(drop);
        assert!(is_lent_again(&namespaces, unix));
        let send = || {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.send_to(b"x", socket.local_addr()?).map(drop)
        };
        assert!(!is_lent_again(&namespaces, send), "a packet was sent");
        let connect = || {
            let listener = TcpListener::bind("[::1]:0")?;
            TcpStream::connect(listener.local_addr()?).map(drop)
        };
        assert!(!is_lent_again(&namespaces, connect), "there was a connection");
        let refused = || {
            let refused = TcpStream::connect("127.0.0.1:9");
            assert!(refused.is_err());
            Ok(())
        };
        assert!(!is_lent_again(&namespaces, refused), "a connection was refused");
        let mut left = None;
        let leave = || {
            left = Some(UdpSocket::bind("127.0.0.1:0")?);
            Ok(())
        };
        assert!(!is_lent_again(&namespaces, leave), "a socket is left");
        let mut left = None;
        let leave = || {
            left = Some(UnixDatagram::unbound()?);
            Ok(())
        };
        assert!(!is_lent_again_after(&namespaces, true, leave), "a Unix socket is left");
        assert!(is_lent_again_after(&namespaces, true, || Ok(())));
        assert!(!is_lent_again(&namespaces, send), "what is known of one is not known of the next");
    }
}
