//! The guest's side of a session: it runs one program and reports.

mod init;
mod output_writer;

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::drive::DriveRegion;
use crate::drive::archive::{ArchiveError, ArchiveReader, ArchiveWriter};
use crate::drive::tree_io::{TreeIoError, TreeOrigin, UnpackLimits, pack, unpack};
use crate::programs::digest_of;
use crate::session::frame::{Frame, FrameDecoder};
use crate::session::messages::{
    HelloMessage, InvalidReply, RefusalMessage, ReportMessage, RunMessage, VERSION, WireProgram,
    all_from_base64, from_base64, shown,
};
use crate::socket::{read_by, write_by};
use cofferdam_core::executor::{Executor, Room, RunInput, WorkspaceInput};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{
    NotStarted, ProgramFile, RunReport, RunSpec, SetupFailure, StdinSource, Watch,
};
use cofferdam_tree::Owner;
pub use init::{SCRATCH_DRIVE, call_host, end, settle};
use output_writer::{Acknowledger, OutputWriter};

/// Time limit from the hello to the end of standard input: the host has it ready.
const ORDERS_WAIT: Duration = Duration::from_secs(30);
/// Time limit for the rest of the output, and for the report.
const LAST_WAIT: Duration = Duration::from_secs(20);
const BUFFER_BYTES: usize = 64 * 1024;

/// Serves the host on `stream`: sends a hello, runs the requested program with the workspace on
/// `drive`, and reports. `executor` runs the program, or is the reason why nothing can run.
///
/// # Errors
/// The host disconnected, as a probe does after the hello, or sent an invalid frame.
pub fn serve(
    stream: UnixStream,
    executor: Result<&dyn Executor, &str>,
    drive: &Path,
) -> Result<(), SetupFailure> {
    let mut conversation = HostSession { stream, decoder: FrameDecoder::default() };
    let able = executor.map_err(str::to_owned).and_then(|executor| {
        let capabilities = executor.describe().map_err(|reason| reason.to_string())?;
        Ok((executor, capabilities))
    });
    let capabilities = match &able {
        Ok((_, capabilities)) => Ok(capabilities.into()),
        Err(reason) => Err(shown(reason)),
    };
    let hello = Frame::Hello(HelloMessage { version: VERSION, capabilities });
    conversation.send(&hello, Deadline::after(LAST_WAIT))?;
    let (run, stdin) = conversation.orders()?;
    let (executor, _) = able.map_err(|reason| SetupFailure::from_words("describe", reason))?;
    let answer = match conversation.run(executor, &run, stdin, drive) {
        Ok((report, uncollected)) => {
            Frame::Report(Box::new(ReportMessage::of(&report, uncollected)))
        }
        Err(why) => Frame::Refused(RefusalMessage::from(&why)),
    };
    conversation.send(&answer, Deadline::after(LAST_WAIT))
}

struct HostSession {
    stream: UnixStream,
    decoder: FrameDecoder,
}

impl HostSession {
    fn send(&mut self, frame: &Frame, deadline: Deadline) -> Result<(), SetupFailure> {
        let bytes =
            frame.encode().map_err(|fault| SetupFailure::from_words("send", fault.to_string()))?;
        write_by(&mut self.stream, &bytes, deadline)
            .map_err(|error| SetupFailure::from_io("send", &error))
    }

    /// Receives the run and its standard input.
    fn orders(&mut self) -> Result<(RunMessage, Vec<u8>), SetupFailure> {
        let deadline = Deadline::after(ORDERS_WAIT);
        let strange = || SetupFailure::from_words("orders", "a frame that only a guest may send");
        let Frame::Run(run) = self.frame(deadline)? else { return Err(strange()) };
        let wanted = run.stdin_bytes.unwrap_or(0);
        let mut stdin = Vec::new();
        while u64::try_from(stdin.len()).unwrap_or(u64::MAX) < wanted {
            let Frame::Input(bytes) = self.frame(deadline)? else { return Err(strange()) };
            stdin.extend(bytes);
        }
        Ok((*run, stdin))
    }

    fn frame(&mut self, deadline: Deadline) -> Result<Frame, SetupFailure> {
        let failed = |reason: String| SetupFailure::from_words("orders", reason);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            if let Some(frame) = self.decoder.next().map_err(|fault| failed(fault.to_string()))? {
                return Ok(frame);
            }
            match read_by(&mut self.stream, &mut buffer, deadline) {
                Ok(0) => return Err(failed("the host disconnected".to_owned())),
                Ok(count) => self.decoder.take(buffer.get(..count).unwrap_or_default()),
                Err(error) => return Err(SetupFailure::from_io("orders", &error)),
            }
        }
    }

    /// Returns the report, and why the result is not on the drive if it is not.
    fn run(
        &mut self,
        executor: &dyn Executor,
        run: &RunMessage,
        stdin: Vec<u8>,
        drive: &Path,
    ) -> Result<(RunReport, Option<String>), NotStarted> {
        let failed = |step: &'static str| move |error| SetupFailure::from_io(step, &error);
        let cancel = CancelToken::new().map_err(failed("eventfd"))?;
        let host = self.stream.try_clone().map_err(failed("dup"))?;
        let output = self.stream.try_clone().map_err(failed("dup"))?;
        let outlet = OutputWriter::start(output).map_err(failed("thread"))?;
        let decoder = std::mem::take(&mut self.decoder);
        listen_to_host(host, decoder, outlet.taken(), cancel.clone()).map_err(failed("thread"))?;
        let spec = spec_of(run, stdin, executor)?;
        let source = File::open(drive).map_err(failed("open drive"))?;
        let target = OpenOptions::new().write(true).open(drive).map_err(failed("open drive"))?;
        let mut uncollected = Some("it was not collected".to_owned());
        let report = executor.execute(
            RunInput {
                spec,
                workspace: WorkspaceInput::Filled {
                    room: Room { bytes: run.room.0, inodes: run.room.1 },
                    fill: &mut |workspace, owner| {
                        fill(&source, run.workspace_bytes, workspace, owner)
                    },
                    collect: &mut |workspace| uncollected = collect(&target, run.result, workspace),
                },
                retained: Default::default(),
            },
            &Watch::of(cancel),
            Some(Box::new(outlet.sink())),
        );
        outlet.finish(Deadline::after(LAST_WAIT));
        Ok((report?, uncollected))
    }
}

/// Reads acknowledgements from the host. Cancels the run on any other frame and on a disconnect.
fn listen_to_host(
    mut host: UnixStream,
    mut decoder: FrameDecoder,
    taken: Acknowledger,
    cancel: CancelToken,
) -> std::io::Result<()> {
    let mut listen = move || {
        let mut buffer = [0; 64];
        host.set_read_timeout(None)?;
        loop {
            match decoder.next() {
                Ok(None) => {}
                Ok(Some(Frame::Taken(bytes))) => {
                    taken.note(bytes);
                    continue;
                }
                Ok(Some(_)) | Err(_) => return Ok(()),
            }
            match host.read(&mut buffer) {
                Ok(count @ 1..) => decoder.take(buffer.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // Other threads set time-outs on the same socket.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return std::io::Result::Ok(()),
            }
        }
    };
    thread::Builder::new().name("host".to_owned()).spawn(move || {
        let _ = listen();
        cancel.cancel();
    })?;
    Ok(())
}

fn spec_of(
    run: &RunMessage,
    stdin: Vec<u8>,
    executor: &dyn Executor,
) -> Result<RunSpec, SetupFailure> {
    let lie = |lie: InvalidReply| SetupFailure::from_words("orders", lie.to_string());
    let program = match &run.program {
        WireProgram::Named => ProgramFile::Named,
        WireProgram::At(path) => ProgramFile::At(from_base64(path).map_err(lie)?),
        WireProgram::Verified { path, sha256 } => {
            let at = from_base64(path).map_err(lie)?;
            let path = at.to_str().map_err(|_| SetupFailure::from_words("orders", "a path"))?;
            ProgramFile::Open { file: verified(path, sha256, executor)?, at }
        }
    };
    Ok(RunSpec {
        argv: all_from_base64(&run.argv).map_err(lie)?,
        program,
        env: all_from_base64(&run.env).map_err(lie)?,
        workdir: run.workdir.clone(),
        stdin: match run.stdin_bytes {
            Some(_) => StdinSource::Bytes(stdin),
            None => StdinSource::Null,
        },
        limits: (&run.limits).into(),
        tmpfs: run.tmpfs(),
        ..RunSpec::default()
    })
}

/// Opens the program, if it has the digest that the host computed.
fn verified(path: &str, sha256: &str, executor: &dyn Executor) -> Result<OwnedFd, SetupFailure> {
    let step = "verify program";
    let found = executor.find_program(path)?;
    let missing = || SetupFailure::from_errno(step, libc::ENOENT);
    let file = File::from(found.ok_or_else(missing)?.file);
    let digest = digest_of(&file).map_err(|error| SetupFailure::from_io(step, &error))?;
    if digest == sha256 {
        return Ok(file.into());
    }
    Err(SetupFailure::from_words(step, "the guest has another file than the host"))
}

fn fill(
    drive: &File,
    bytes: u64,
    workspace: BorrowedFd<'_>,
    owner: Owner,
) -> Result<(), SetupFailure> {
    let failed = |fault: TreeIoError| SetupFailure::from_words("fill workspace", fault.to_string());
    let bounds =
        UnpackLimits { entries_max: u64::MAX, bytes_max: u64::MAX, file_bytes_max: u64::MAX };
    let mut reader =
        ArchiveReader::begin(BufReader::with_capacity(BUFFER_BYTES, drive.take(bytes)))
            .map_err(|fault| failed(fault.into()))?;
    unpack(&mut reader, workspace, TreeOrigin::Ours(owner), bounds).map_err(failed)
}

/// Writes the result to the drive. Returns the reason if it failed.
fn collect(drive: &File, result: (u64, u64), workspace: BorrowedFd<'_>) -> Option<String> {
    let written = || -> Result<(), TreeIoError> {
        let io = ArchiveError::Io;
        let region = DriveRegion::of(drive.try_clone().map_err(io)?, result).map_err(io)?;
        let buffered = BufWriter::with_capacity(BUFFER_BYTES, region);
        let mut writer = ArchiveWriter::begin(buffered).map_err(io)?;
        pack(workspace, TreeOrigin::Theirs, &mut writer)?;
        let region = writer.into_inner().into_inner().map_err(|error| io(error.into()))?;
        Ok(region.sync().map_err(io)?)
    };
    written().err().map(|fault| fault.to_string())
}
