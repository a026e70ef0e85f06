//! A real guest under QEMU: its kernel, its init and sandboxes in it. Tests run one at a time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam::executor::Executor;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::{OutputSink, StdinSource, Stream};
use cofferdam_firecracker::{MicroVms, Settings};

use crate::job::Job;
use crate::qemu::Qemu;

/// Each guest takes a gigabyte and most of two processors.
static TURNS: Mutex<()> = Mutex::new(());

struct Guests {
    backend: MicroVms<Qemu>,
    _work: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

fn guests() -> Guests {
    let turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let work = tempfile::tempdir().unwrap();
    let programs = std::env::var_os("GUEST_PROGRAMS").expect("make test-firecracker sets it");
    // An emulated processor is slow, especially on a busy machine.
    let settings = Settings {
        boot_wait: Duration::from_secs(180),
        answer_wait: Duration::from_secs(180),
        cancel_wait: Duration::from_secs(60),
        vcpus: 2,
        own_memory_mib: 512,
        ..Settings::new(work.path().to_owned(), PathBuf::from(programs))
    };
    Guests { backend: MicroVms::new(settings, Qemu::prepared()), _work: work, _turn: turn }
}

#[test]
#[ignore = "make test-firecracker prepares guests"]
fn a_guest_holds_runs_to_everything() {
    let guests = guests();
    let capabilities = guests.backend.describe().unwrap();
    assert_eq!(capabilities.not_enforced, [""; 0]);
    let enforced = capabilities.enforced;
    assert_eq!((enforced.memory, enforced.cpu), (Some("cgroup2"), Some("cgroup2")));
    assert!(enforced.namespaces.contains(&"net"), "{enforced:?}");
}

#[test]
#[ignore = "make test-firecracker prepares guests"]
fn a_job_has_its_files_its_input_and_no_network_and_leaves_its_own() {
    let guests = guests();
    let mut job = Job::python(
        &guests.backend,
        "import os, sys\n\
         print(open('sub/in.txt').read(), sys.stdin.read(), os.getuid(), sorted(os.environ))\n\
         print([line.split(':')[0].strip() for line in open('/proc/net/dev').readlines()[2:]], file=sys.stderr)\n\
         os.makedirs('out/deep'); open('out/deep/made.txt', 'w').write('made é')\n\
         os.symlink('/etc/passwd', 'out/link'); os.mkfifo('out/fifo')\n\
         open('sub/in.txt', 'a').write(' and back')\n\
         sys.exit(3)",
    );
    job.files = vec![("sub/in.txt", "from the host"), ("other", "")];
    job.spec.stdin = StdinSource::Bytes(b"typed".to_vec());
    let ran = job.run(&guests.backend, None);
    let stdout = "from the host typed 10001 ['LC_CTYPE']\n".to_owned();
    assert_eq!(ran.ending(), ("exited", Some(3), stdout, "['lo']\n".to_owned()));
    let left: Vec<(&str, Option<&str>)> =
        ran.left.iter().map(|(name, contents)| (&**name, contents.as_deref())).collect();
    assert_eq!(
        left,
        [
            ("other", Some("")),
            ("out/deep/made.txt", Some("made é")),
            ("out/fifo", None),
            ("out/link", None),
            ("sub/in.txt", Some("from the host and back")),
        ]
    );
    let report = ran.report.unwrap();
    assert_eq!((report.usage.memory_peak_source, report.not_enforced.len()), ("cgroup2", 0));
    println!("prepare {:?}, run {:?}", report.timings.prepare, report.timings.run);
}

#[test]
#[ignore = "make test-firecracker prepares guests"]
fn a_time_out_and_a_memory_limit_hold_inside_and_what_was_made_is_kept() {
    let guests = guests();
    let begin = "open('made', 'w').write('early'); print('begun', flush=True);";
    let mut endless = Job::python(&guests.backend, &format!("{begin}\nwhile True: pass"));
    endless.spec.limits.wall = Duration::from_secs(8);
    let ran = endless.run(&guests.backend, None);
    assert_eq!(ran.ending(), ("timed_out", None, "begun\n".to_owned(), String::new()));
    assert_eq!(ran.left["made"].as_deref(), Some("early"));
    // The guest answered, not the host for a silent guest.
    assert_eq!(ran.report.unwrap().not_enforced, [""; 0]);
    let mut hog = Job::python(&guests.backend, &format!("{begin}\nx = bytearray(200 << 20)"));
    hog.spec.limits.memory_bytes_max = 64 << 20;
    let ran = hog.run(&guests.backend, None);
    assert_eq!(ran.ending().0, "memory_limit", "{:?}", ran.report);
    assert_eq!(ran.left["made"].as_deref(), Some("early"));
}

/// Cancels the run at its first output.
struct CancelAtOutput {
    cancel: CancelToken,
    taken: Arc<Mutex<Vec<u8>>>,
}

impl OutputSink for CancelAtOutput {
    fn take(&mut self, _: Stream, bytes: &[u8]) {
        self.taken.lock().unwrap().extend_from_slice(bytes);
        self.cancel.cancel();
    }
}

#[test]
#[ignore = "make test-firecracker prepares guests"]
fn output_comes_while_the_program_runs_and_a_cancel_ends_it() {
    let guests = guests();
    let job = Job::python(
        &guests.backend,
        "import time\nopen('made', 'w').write('x')\nprint('live', flush=True)\ntime.sleep(600)",
    );
    let taken = Arc::new(Mutex::new(Vec::new()));
    let sink = CancelAtOutput { cancel: job.cancel.clone(), taken: Arc::clone(&taken) };
    let ran = job.run(&guests.backend, Some(Box::new(sink)));
    assert_eq!(ran.ending(), ("cancelled", None, "live\n".to_owned(), String::new()));
    assert_eq!(*taken.lock().unwrap(), b"live\n");
    assert_eq!(ran.left["made"].as_deref(), Some("x"));
}

#[test]
#[ignore = "make test-firecracker prepares guests"]
fn much_output_and_a_hostile_tree_come_back_within_their_bounds() {
    let guests = guests();
    let mut job = Job::python(
        &guests.backend,
        "import os, sys\n\
         for _ in range(40): sys.stdout.write('x' * 50000)\n\
         sys.stdout.flush()\n\
         with open('sparse', 'wb') as f: f.truncate(40 << 20)\n\
         for name in ('new\\nline', ' ', '-rf', '*'): open(name, 'w').close()\n\
         os.makedirs('loop'); os.symlink('..', 'loop/up')\n\
         for _ in range(400): os.mkdir('d'); os.chdir('d')\n\
         open('deepest', 'w').close()",
    );
    job.spec.limits.output_bytes_max = Some(3_000_000);
    let ran = job.run(&guests.backend, None);
    let report = ran.report.as_ref().unwrap();
    assert_eq!((report.outcome.word(), report.stdout.bytes_total), ("exited", 2_000_000));
    assert_eq!(report.stdout.bytes.len(), 2_000_000);
    for name in ["new\nline", " ", "-rf", "*"] {
        assert_eq!(ran.left[name].as_deref(), Some(""), "{name:?}");
    }
    assert_eq!(ran.left["sparse"].as_ref().map(String::len), Some(40 << 20));
    assert_eq!(ran.left["loop/up"], None);
    let deep = ran.left.keys().map(|name| name.matches('/').count()).max();
    assert_eq!(deep, Some(255), "the depth limit of a transferred tree");
}

#[test]
#[ignore = "make test-firecracker prepares guests"]
fn a_program_that_is_another_in_the_guest_is_not_run() {
    let guests = guests();
    let mut job = Job::python(&guests.backend, "print('never')");
    let other = std::fs::File::open("/proc/self/exe").unwrap();
    let at = std::ffi::CString::new("/usr/bin/python3.11").unwrap();
    job.spec.program = cofferdam_core::ProgramFile::Open { file: other.into(), at };
    let ran = job.run(&guests.backend, None);
    let failure = ran.report.unwrap_err().to_string();
    assert!(
        failure.ends_with("verify program: the guest has another file than the host"),
        "{failure}"
    );
    assert!(ran.left.is_empty());
}
