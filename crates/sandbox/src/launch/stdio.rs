//! The standard streams of a new sandbox: three pipes, or one terminal.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, fchown};

use crate::supervise::io::StdioPipes;
use crate::supervise::io::output_capture::{OutputBound, OutputCapture};
use crate::supervise::io::pipe::{PipeEnd, pipe_from_sandbox, pipe_into_sandbox};
use crate::supervise::io::stdin_feed::StdinFeed;
use crate::sys;
use crate::sys::streams;
use cofferdam_core::sync::run_control::TerminalSize;
use cofferdam_core::{SetupFailure, StdinSource, Stream};

/// How many terminals the programs of one sandbox can open.
const TERMINALS_MAX: &CStr = c"64";

/// Both ends of the standard streams.
#[derive(Debug)]
pub struct SandboxStdio {
    /// Our ends, which also hold the sandbox's ends of the outputs.
    pub streams: StdioPipes,
    /// The sandbox's standard input, if nothing else holds it.
    stdin_end: OwnedFd,
    /// The number of the sandbox's end of each output.
    output_ends: [RawFd; 2],
}

/// A terminal for a sandbox, in a file system of its own.
#[derive(Debug)]
pub struct Terminal {
    /// The file system, mounted nowhere.
    pub mount: Arc<OwnedFd>,
    /// Our end.
    pub master: Arc<OwnedFd>,
    /// The program's end.
    slave: OwnedFd,
}

impl Terminal {
    /// Creates a terminal of this size, which belongs to the host id `tenant`.
    pub fn new(tenant: u32, size: TerminalSize) -> Result<Self, SetupFailure> {
        Self::in_mount(&Arc::new(Self::mount(tenant)?), size)
    }

    /// Creates a file system of terminals that belong to the host id `tenant`.
    pub fn mount(tenant: u32) -> Result<OwnedFd, SetupFailure> {
        let create = || -> io::Result<OwnedFd> {
            let id = CString::new(tenant.to_string())?;
            let options: [(&CStr, &CStr); 5] = [
                (c"uid", &id),
                (c"gid", &id),
                (c"mode", c"620"),
                (c"ptmxmode", c"666"),
                (c"max", TERMINALS_MAX),
            ];
            sys::detached_devpts(&options)
        };
        create().map_err(|error| SetupFailure::from_io("terminal", &error))
    }

    /// Creates a terminal of this size in the file system `mount`.
    pub fn in_mount(mount: &Arc<OwnedFd>, size: TerminalSize) -> Result<Self, SetupFailure> {
        let create = || -> io::Result<Self> {
            let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
            let master = openat(mount, c"ptmx", flags, Mode::empty())?;
            let slave = streams::open_terminal(master.as_fd())?;
            streams::resize_terminal(master.as_fd(), size)?;
            Ok(Self { mount: Arc::clone(mount), master: Arc::new(master), slave })
        };
        create().map_err(|error| SetupFailure::from_io("terminal", &error))
    }
}

impl SandboxStdio {
    /// Three pipes; stdin is the null device without a source. The pipes belong to the host id
    /// `tenant`, so that programs can open `/dev/stdin`, `/dev/stdout` and `/dev/stderr`, which
    /// lead to them.
    pub fn pipes(
        stdin: StdinSource,
        [stdout_bound, stderr_bound]: [OutputBound; 2],
        tenant: Option<u32>,
    ) -> Result<Self, SetupFailure> {
        let failed =
            |step: &'static str| move |error: io::Error| SetupFailure::from_io(step, &error);
        let (stdout, stdout_end) = pipe_from_sandbox().map_err(failed("stdout pipe"))?;
        let (stderr, stderr_end) = pipe_from_sandbox().map_err(failed("stderr pipe"))?;
        let (feed, stdin_end) = open_stdin(stdin).map_err(failed("stdin"))?;
        if let Some(tenant) = tenant {
            // Not the null device, which is the host's.
            let stdin_pipe = feed.is_some().then_some(&stdin_end);
            for pipe in [&stdout_end, &stderr_end].into_iter().chain(stdin_pipe) {
                let (uid, gid) = (Uid::from_raw(tenant), Gid::from_raw(tenant));
                let given = fchown(pipe, Some(uid), Some(gid));
                given.map_err(|errno| failed("pipe owner")(errno.into()))?;
            }
        }
        let output_ends = [stdout_end.as_raw_fd(), stderr_end.as_raw_fd()];
        let streams = StdioPipes {
            stdout: OutputCapture::new(Stream::Stdout, stdout, stdout_end, stdout_bound),
            stderr: OutputCapture::new(Stream::Stderr, stderr, stderr_end, stderr_bound),
            feed,
        };
        Ok(Self { streams, stdin_end, output_ends })
    }

    /// The terminal for all three. Its output comes as stdout.
    pub fn terminal(
        terminal: Terminal,
        stdin: StdinSource,
        [bound, no_stderr]: [OutputBound; 2],
    ) -> Result<Self, SetupFailure> {
        let end = |fd: &OwnedFd| fd.try_clone().and_then(PipeEnd::new);
        let open = || -> io::Result<Self> {
            let Terminal { master, slave, .. } = terminal;
            let feed = match stdin {
                StdinSource::Null => None,
                source => Some(StdinFeed::of_terminal(source, end(&master)?, slave.try_clone()?)),
            };
            let stdin_end = slave.try_clone()?;
            let output_ends = [slave.as_raw_fd(); 2];
            let streams = StdioPipes {
                stdout: OutputCapture::new(Stream::Stdout, end(&master)?, slave, bound),
                stderr: OutputCapture::closed(Stream::Stderr, no_stderr),
                feed,
            };
            Ok(Self { streams, stdin_end, output_ends })
        };
        open().map_err(|error| SetupFailure::from_io("terminal", &error))
    }

    /// The sandbox's descriptors 0 to 2.
    pub fn descriptors(&self) -> [RawFd; 3] {
        let [stdout, stderr] = self.output_ends;
        [self.stdin_end.as_raw_fd(), stdout, stderr]
    }
}

/// The program's stdin, and the feed of its pipe unless it is the null device.
fn open_stdin(source: StdinSource) -> io::Result<(Option<StdinFeed>, OwnedFd)> {
    let source = match source {
        StdinSource::Null => return Ok((None, File::open("/dev/null")?.into())),
        StdinSource::Given(end) => return Ok((None, end)),
        source => source,
    };
    let (ours, theirs) = pipe_into_sandbox()?;
    Ok((Some(StdinFeed::new(source, ours)), theirs))
}
