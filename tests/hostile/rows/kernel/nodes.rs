//! Sockets, fifos and devices of the host that a run sees.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;
use tempfile::TempDir;

use super::answers::assert_each;
use crate::Unexercised;
use crate::exec::SharedDirectory;
use crate::observe::observed;
use crate::probe::Probe;
use crate::target::Target;

const REFUSED: &[&str] = &["EACCES", "EPERM", "ENOENT", "ECONNREFUSED", "ENXIO"];

/// Tries sockets bound after the service's start, one of them during the run, and sockets bound
/// before a service starts.
pub fn sockets_of_host(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let nodes = Nodes::new();
    let probe = Probe::python("host_nodes").arg("sockets").arg(nodes.path());
    let live = target.begin(&probe);
    let late = nodes.bind_late();
    let seen = observed(&live.answer());
    assert_eq!(seen["shown"], "ok", "the directory is not shown: {seen}");
    assert_each(&seen["answers"], REFUSED);
    nodes.assert_silent(&late);

    let script = include_str!("../../../probes/host_nodes.py");
    let script = format!("{script}\nimport json\nprint(json.dumps(sockets({:?})))", nodes.path());
    let python = ["/usr/bin/python3", "-I", "-S", "-c", &script];
    let ended = SharedDirectory::new().exec(own, &[], &python);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let seen: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(seen["shown"], "ok", "the directory is not shown: {seen}");
    assert_each(&seen["answers"], REFUSED);
    nodes.assert_silent(&late);
    Ok(())
}

/// Compares the times, mode and owner of the host's nodes before and after a run that sets them.
pub fn devices_of_host(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let nodes = || ["null", "zero", "full", "random", "urandom"].map(times_and_mode);
    let before = nodes();
    let seen = target.observe(&Probe::python("host_nodes").arg("devices"));
    assert_each(&seen["attempts"], &["EROFS", "EACCES", "EPERM"]);
    assert_each(&seen["uses"], &["ok"]);
    assert_eq!(nodes(), before, "a run changed a device node of the host");
    Ok(())
}

fn times_and_mode(node: &str) -> [i64; 5] {
    let node = fs::metadata(Path::new("/dev").join(node)).unwrap();
    [node.mtime(), node.mtime_nsec(), node.ctime(), node.ctime_nsec(), node.mode().into()]
}

/// A directory of the host that runs see, with sockets and a fifo that every user may write to.
struct Nodes {
    place: TempDir,
    stream: UnixListener,
    datagram: UnixDatagram,
    fifo: File,
}

impl Nodes {
    fn new() -> Self {
        let place = tempfile::tempdir_in("/opt").unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let at = |name: &str| place.path().join(name);
        let stream = UnixListener::bind(at("stream")).unwrap();
        stream.set_nonblocking(true).unwrap();
        let datagram = UnixDatagram::bind(at("datagram")).unwrap();
        datagram.set_nonblocking(true).unwrap();
        mkfifo(&at("fifo"), Mode::empty()).unwrap();
        for name in ["stream", "datagram", "fifo"] {
            fs::set_permissions(at(name), Permissions::from_mode(0o666)).unwrap();
        }
        let mut open = OpenOptions::new();
        open.read(true).write(true).custom_flags(libc::O_NONBLOCK);
        let fifo = open.open(at("fifo")).unwrap();
        Self { place, stream, datagram, fifo }
    }

    fn path(&self) -> String {
        self.place.path().display().to_string()
    }

    /// The socket has its mode before its name appears.
    fn bind_late(&self) -> UnixListener {
        let at = |name: &str| -> PathBuf { self.place.path().join(name) };
        let late = UnixListener::bind(at("early")).unwrap();
        late.set_nonblocking(true).unwrap();
        fs::set_permissions(at("early"), Permissions::from_mode(0o666)).unwrap();
        fs::rename(at("early"), at("late")).unwrap();
        late
    }

    #[track_caller]
    fn assert_silent(&self, late: &UnixListener) {
        let would_block = |error: std::io::Error| error.kind() == ErrorKind::WouldBlock;
        for listener in [&self.stream, late] {
            assert!(listener.accept().is_err_and(would_block), "the socket got a connection");
        }
        assert!(self.datagram.recv(&mut [0]).is_err_and(would_block), "the socket got a datagram");
        assert!((&self.fifo).read(&mut [0]).is_err_and(would_block), "the fifo got data");
    }
}
