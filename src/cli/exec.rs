//! `cofferdam exec`: any command in a box.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use clap::Args;
use nix::fcntl::OFlag;

use super::attended::Attended;
use super::boxes::{PROFILE, ROOTFS_VARIABLE, root_source};
use super::failure::{Failure, error_words};
use super::figures;
use super::report::Report;
use super::writable_binds::WritableBinds;
use crate::check::languages::environment;
use crate::executor::{Executor, RunInput, SandboxExecutor, WorkspaceInput};
use cofferdam_core::values::cpus::parse_cpus_milli;
use cofferdam_core::{
    Bind, Limits, NotStarted, OutputSink, ProgramFile, RunReport, RunSpec, SetupFailure,
    StdinSource, Tmpfs, WorkspaceFill,
};
use cofferdam_sandbox::builtin_profile;
use cofferdam_sandbox::{RootSource, Sandbox, SandboxConfig};
use cofferdam_seccomp::profile::Profile;

/// The most paths shown beside the root: each takes descriptors while the box is made.
const BINDS_MAX: usize = 64;

const EXAMPLES: &str = "\
Examples:
  cofferdam exec -- id
  cofferdam exec --timeout 5s --memory 256MiB -- python3 -c 'print(1)'
  cofferdam exec --bind ./data:/data:ro --bind ./out:/out --workdir /out -- make -f /data/Makefile
  cofferdam exec --report report.json --cpu-time 2s -- ./busy <input.txt

Exit codes:
  the program's own; 128+n when it died of signal n; 124 a time limit; 123 killed for another limit;
  125 the sandbox failed; 126 not executable; 127 not found; 2 usage";

/// Runs a command in the box of a /run, with an empty writable /workspace.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Exec {
    /// Show a file or directory of the host inside, writable unless `:ro`
    #[arg(long, value_name = "SRC:DST[:ro]", value_parser = figures::bind)]
    bind: Vec<Bind>,
    /// Mount an empty private file system inside
    #[arg(long, value_name = "DST[:SIZE]", value_parser = figures::tmpfs)]
    tmpfs: Vec<Tmpfs>,
    /// The working directory inside
    #[arg(long, value_name = "DIR", default_value = "/workspace", value_parser = figures::directory)]
    workdir: PathBuf,
    /// Set a variable; nothing of the own environment is passed on
    #[arg(long, value_name = "K=V", value_parser = figures::variable)]
    env: Vec<(String, String)>,
    /// The sandbox profile
    #[arg(long, value_name = "NAME", default_value = PROFILE)]
    profile: String,
    /// The root file system instead of the host's [SANDBOX_ROOTFS]
    #[arg(long, value_name = "DIR")]
    rootfs: Option<PathBuf>,
    /// Write what became of the run there, as JSON; empty when it never began
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
    // Last, or its heading would stand over the others too.
    #[command(flatten)]
    limits: LimitOptions,
}

/// The bounds of the run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
struct LimitOptions {
    /// Wall-clock time, as 500ms or 30s [default: 30s]
    #[arg(long, value_name = "D", value_parser = figures::duration)]
    timeout: Option<Duration>,
    /// CPU time of all processes together [default: of each, the timeout]
    #[arg(long, value_name = "D", value_parser = figures::duration)]
    cpu_time: Option<Duration>,
    /// Memory, as 256MiB, files in /tmp and /workspace included [default: 768MiB]
    #[arg(long, value_name = "SIZE", value_parser = figures::bytes)]
    memory: Option<u64>,
    /// Processes and threads [default: 256]
    #[arg(long, value_name = "N", value_parser = figures::count)]
    pids: Option<u64>,
    /// CPUs, as 1.5 [default: all]
    #[arg(long, value_name = "N", value_parser = parse_cpus_milli)]
    cpus: Option<u64>,
    /// Bytes in all writable places together [default: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = figures::bytes)]
    disk: Option<u64>,
    /// Open files of a process [default: 256]
    #[arg(long, value_name = "N", value_parser = figures::count)]
    files: Option<u64>,
    /// Bytes on each of stdout and stderr, 0 for no limit [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = figures::bytes_or_unlimited)]
    output: Option<u64>,
}

impl LimitOptions {
    /// The limits of `preset` with these over them.
    fn over(&self, preset: Limits) -> Limits {
        let mut limits = match self.timeout {
            Some(timeout) => preset.with_wall(timeout),
            None => preset,
        };
        if let Some(cpu_time) = self.cpu_time {
            limits = Limits { wall: limits.wall, ..limits.clone().with_wall(cpu_time) };
            limits.cpu_total_max = Some(cpu_time);
        }
        if let Some(disk) = self.disk {
            limits.disk_bytes_max = disk;
            // Whoever gives a box so much may want it in one file.
            limits.file_bytes_max = limits.file_bytes_max.max(disk);
        }
        if let Some(output) = self.output {
            limits.output_bytes_max = (output > 0).then_some(output);
        }
        limits.memory_bytes_max = self.memory.unwrap_or(limits.memory_bytes_max);
        limits.processes_max = self.pids.unwrap_or(limits.processes_max);
        limits.cpus_milli_max = self.cpus.or(limits.cpus_milli_max);
        limits.open_files_max = self.files.unwrap_or(limits.open_files_max);
        limits
    }
}

impl Exec {
    /// Runs the command to its end; the exit code is the contract's.
    pub fn run(self) -> Result<u8, Failure> {
        let profile = profile(&self.profile)?;
        let rootfs = self.rootfs.clone().or_else(|| env::var_os(ROOTFS_VARIABLE).map(Into::into));
        let root = root_source(rootfs.as_deref()).map_err(Failure::Usage)?;
        let program = self.command.first().cloned().unwrap_or_default();
        let report = self.report.clone();
        let shared = WritableBinds::of(&self.bind);
        let spec = self.spec(&shared)?;
        // Opened before the run, which should not be in vain; and last, so that
        // no mistake elsewhere costs an older report.
        let report_file = report.as_deref().map(|path| create_report(path, &shared)).transpose()?;
        let attended = Attended::begin()?;
        let (result, broken) = attended.pass_through(|sink| {
            run_in_box(profile, root, spec, &attended, sink)
                .map_err(|why| Failure::not_started(program, why))
        })?;
        if let (Ok(report), Some(file)) = (&result, report_file) {
            write_report(file, &Report::of(report))
                .map_err(|source| Failure::Write { what: "the report", source })?;
        }
        attended.exit_code(result.map(|report| report.outcome), broken)
    }

    fn spec(self, shared: &WritableBinds) -> Result<RunSpec, Failure> {
        if self.bind.len() > BINDS_MAX {
            return Err(Failure::option(
                "--bind",
                format!("{}; want at most {BINDS_MAX}", self.bind.len()),
            ));
        }
        let words = self.command.into_iter().map(|word| CString::new(word.into_vec()));
        let argv =
            words.collect::<Result<_, _>>().map_err(|error| Failure::option("CMD", error))?;
        let variables: BTreeMap<String, String> = self.env.into_iter().collect();
        Ok(RunSpec {
            argv,
            program: ProgramFile::Named,
            without_shell: None,
            env: environment(None, &variables),
            workdir: self.workdir,
            stdin: stdin().map_err(|error| SetupFailure::from_io("stdin", &error))?,
            limits: self.limits.over(Limits::default()),
            workspace: WorkspaceFill::Own,
            binds: self
                .bind
                .into_iter()
                .map(|bind| existing(bind, shared))
                .collect::<Result<_, _>>()?,
            tmpfs: self.tmpfs,
        })
    }
}

fn run_in_box(
    profile: Profile,
    root: RootSource,
    spec: RunSpec,
    attended: &Attended,
    sink: Box<dyn OutputSink>,
) -> Result<RunReport, NotStarted> {
    let sandbox =
        Sandbox::open_for_one(SandboxConfig { profile, root, private: Vec::new(), strict: false })?;
    let workspace = WorkspaceInput::Template { dir: None, files: &[] };
    let input = RunInput { spec, workspace, retained: Default::default() };
    SandboxExecutor::new(sandbox).execute(input, &attended.watch(), Some(sink))
}

fn profile(name: &str) -> Result<Profile, Failure> {
    builtin_profile(name).map_err(|error| {
        let names: Vec<_> = Profile::builtin_names().collect();
        Failure::option("--profile", format!("{error}; want one of {}", names.join(", ")))
    })
}

/// Our standard input as the program's.
fn stdin() -> io::Result<StdinSource> {
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let metadata = stdin.metadata()?;
    let nothing = fs::metadata("/dev/null")?.rdev();
    // A closed stdin is the same by now: the runtime puts /dev/null in its place.
    if metadata.file_type().is_char_device() && metadata.rdev() == nothing {
        return Ok(StdinSource::Null);
    }
    Ok(StdinSource::Copied(stdin.into()))
}

/// `bind` with its source found and made absolute.
fn existing(bind: Bind, shared: &WritableBinds) -> Result<Bind, Failure> {
    let fault = |error: io::Error| {
        Failure::option("--bind", format!("{}: {}", bind.source.display(), error_words(&error)))
    };
    shared.open_within(&bind.source, OFlag::O_PATH).map_err(fault)?;
    let source = path::absolute(&bind.source).map_err(fault)?;
    fs::metadata(&source).map_err(fault)?;
    Ok(Bind { source, ..bind })
}

/// Where tenants write, nothing is followed, nor waited for as a fifo without a reader is.
fn create_report(path: &Path, shared: &WritableBinds) -> Result<File, Failure> {
    let fault = |error: io::Error| {
        Failure::option("--report", format!("{}: {}", path.display(), error_words(&error)))
    };
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NONBLOCK;
    let within = shared.open_within(path, flags).map_err(fault)?;
    let Some(file) = within.map(File::from) else {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path);
        return file.map_err(fault);
    };
    // A fifo with a reader of the tenant's cannot be cut.
    file.set_len(0).map_err(fault)?;
    Ok(file)
}

fn write_report(mut file: File, report: &Report<'_>) -> io::Result<()> {
    let mut text = serde_json::to_vec(report)?;
    text.push(b'\n');
    file.write_all(&text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct OnlyLimits {
        #[command(flatten)]
        limits: LimitOptions,
    }

    fn limits(options: &[&str]) -> Limits {
        let words = ["exec"].iter().chain(options);
        OnlyLimits::try_parse_from(words).unwrap().limits.over(Limits::default())
    }

    #[test]
    fn what_is_not_given_stays() {
        assert_eq!(limits(&[]), Limits::default());
    }

    #[test]
    fn cpu_time_bounds_each_process_and_all_together() {
        let limits = limits(&["--timeout", "10s", "--cpu-time", "1500ms"]);
        assert_eq!(limits.wall, Duration::from_secs(10));
        assert_eq!(limits.cpu_seconds_max, 2);
        assert_eq!(limits.cpu_total_max, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn every_figure_reaches_its_limit() {
        let options =
            "--timeout 5s --memory 64MiB --pids 7 --cpus 1.5 --disk 1GiB --files 9 --output 0";
        let options: Vec<_> = options.split(' ').collect();
        let want = Limits {
            memory_bytes_max: 64 << 20,
            processes_max: 7,
            cpus_milli_max: Some(1500),
            disk_bytes_max: 1 << 30,
            file_bytes_max: 1 << 30,
            open_files_max: 9,
            output_bytes_max: None,
            ..Limits::default().with_wall(Duration::from_secs(5))
        };
        assert_eq!(limits(&options), want);
        assert_eq!(limits(&["--disk", "1MiB"]).file_bytes_max, Limits::default().file_bytes_max);
    }
}
