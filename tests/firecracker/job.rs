//! A job that a test builds and runs.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam::executor::{Executor, Room, RunInput, WorkspaceInput};
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{
    Limits, NotStarted, OutputSink, ProgramFile, RunReport, RunSpec, StdinSource, Watch,
};

/// One job.
pub struct Job {
    pub spec: RunSpec,
    pub files: Vec<(&'static str, &'static str)>,
    pub cancel: CancelToken,
}

/// The outcome: the answer, and the contents of files by path, `None` for special files.
pub struct Ran {
    pub report: Result<RunReport, NotStarted>,
    pub left: BTreeMap<String, Option<String>>,
}

fn c_string(text: &str) -> CString {
    CString::new(text).unwrap()
}

impl Job {
    /// A Python program, run by the interpreter that the backend finds.
    pub fn python(executor: &dyn Executor, program: &str) -> Self {
        let found = executor.find_program("python3").unwrap().expect("python3 is in the root");
        let program_file = ProgramFile::Open { file: found.file, at: c_string(&found.target) };
        let argv = ["python3", "-c", program].map(c_string).to_vec();
        Self {
            spec: RunSpec {
                argv,
                program: program_file,
                env: Vec::new(),
                workdir: "/workspace".into(),
                stdin: StdinSource::Null,
                limits: Limits::default().with_wall(Duration::from_secs(60)),
                ..RunSpec::default()
            },
            files: Vec::new(),
            cancel: CancelToken::new().unwrap(),
        }
    }

    pub fn run(self, executor: &dyn Executor, sink: Option<Box<dyn OutputSink>>) -> Ran {
        let Self { spec, files, cancel } = self;
        let mut left = BTreeMap::new();
        let bytes = files.iter().map(|(_, contents)| contents.len() as u64 + 4096).sum();
        let task = RunInput {
            spec,
            retained: Default::default(),
            workspace: WorkspaceInput::Filled {
                room: Room { bytes, inodes: 2 * files.len() as u64 },
                fill: &mut |workspace, _| {
                    for (name, contents) in &files {
                        let path = path_of(workspace).join(name);
                        fs::create_dir_all(path.parent().unwrap()).unwrap();
                        fs::write(path, contents).unwrap();
                    }
                    Ok(())
                },
                collect: &mut |workspace| collect(&path_of(workspace), "", &mut left),
            },
        };
        let report = executor.execute(task, &Watch::of(cancel), sink);
        Ran { report, left }
    }
}

impl Ran {
    /// The outcome's word, the exit code, and the output.
    #[track_caller]
    pub fn ending(&self) -> (&'static str, Option<u8>, String, String) {
        let report = self.report.as_ref().unwrap();
        let [stdout, stderr] =
            [&report.stdout, &report.stderr].map(|stream| stream.text().into_owned());
        (report.outcome.word(), report.outcome.shell_code(), stdout, stderr)
    }
}

fn path_of(directory: BorrowedFd<'_>) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).unwrap()
}

fn collect(directory: &Path, above: &str, left: &mut BTreeMap<String, Option<String>>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = format!("{above}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            collect(&entry.path(), &format!("{name}/"), left);
        } else {
            let contents = kind.is_file().then(|| fs::read(entry.path()).unwrap());
            left.insert(name, contents.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
}
