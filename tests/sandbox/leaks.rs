//! Runs leave nothing behind.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

use cofferdam_test_support::processes::{
    cgroups_of, eventually, in_own_process, own_instances, processes_of,
};
use cofferdam_test_support::{self as support, Host, MIB, Program};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use cofferdam_core::{NotStarted, StdinSource};

/// A backend in a mount namespace in which only this thread mounts and creates temporary files, so
/// that every difference comes from the sandbox. Mounts in a namespace cloned from this one would
/// propagate back.
fn secluded_host() -> Option<Host> {
    // Only checks for support: that backend was opened in another namespace.
    drop(support::host()?);
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("tmpfs"), "/tmp", Some("tmpfs"), MsFlags::empty(), none).unwrap();
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SHARED, none).unwrap();
    support::host()
}

/// Counts of this process and the host.
fn counts() -> BTreeMap<&'static str, Vec<String>> {
    let names = |path: &str| {
        let mut names: Vec<String> = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    let instances = own_instances();
    let ids = instances.iter().filter_map(|path| path.file_name()?.to_str());
    let mountinfo = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    BTreeMap::from([
        ("descriptors", names("/proc/self/fd")),
        ("threads", names("/proc/self/task")),
        ("mounts", mountinfo.lines().map(str::to_owned).collect()),
        ("files in /tmp", names("/tmp")),
        ("cgroups", ids.flat_map(cgroups_of).map(|path| path.display().to_string()).collect()),
    ])
}

/// Every way a run can end, and the word for its outcome.
fn mixed(host: &Host, slot: &cofferdam_sandbox::engine::HostId, number: usize) -> &'static str {
    let program = match number % 10 {
        0 => Program::sh("echo hi; exit 3"),
        1 => Program::sh("sleep 60 & setsid sleep 60 & echo gone"),
        2 => Program::sh("sleep 60").limits(|limits| limits.wall = Duration::from_millis(20)),
        3 => Program::sh("exec yes").limits(|limits| limits.output_bytes_max = Some(4096)),
        4 => Program::sh("kill -9 $$"),
        5 => Program::new(&["/absent"]),
        6 => Program::sh("true").workdir("/absent"),
        7 => Program::sh("mkdir -p /tmp/a/b/c; head -c 1000000 /dev/zero >/tmp/a/b/c/d")
            .bind("/usr/share".as_ref(), "/shown", true)
            .tmpfs("/scratch", Some(MIB)),
        8 => Program::sh("head -c 10 >/dev/null").stdin(StdinSource::Bytes(vec![0; 200_000])),
        _ => {
            let program = Program::sh("sleep 60");
            program.cancel_token().cancel();
            program
        }
    };
    host.try_run_as(slot, program).map_or("not started", |report| report.outcome.word())
}

#[test]
fn two_hundred_runs_leave_nothing_behind() {
    in_own_process("leaks::two_hundred_runs_leave_nothing_behind", || {
        let Some(host) = secluded_host() else { return };
        let slot = host.host_id();
        // Creates what is kept for later runs, such as the file of the init program.
        for number in 0..10 {
            mixed(&host, &slot, number);
        }
        let before = counts();
        let mut words = BTreeMap::<&str, usize>::new();
        (0..200).for_each(|number| *words.entry(mixed(&host, &slot, number)).or_default() += 1);
        for (what, after) in counts() {
            assert_eq!(after, before[what], "{what} after {words:?}");
        }
        assert_eq!(processes_of(slot.id()), [""; 0]);
        for word in ["exited", "timed_out", "output_limit", "signaled", "not started"] {
            assert!(words.get(word).is_some_and(|count| *count >= 20), "{words:?}");
        }

        let instances = own_instances();
        assert_eq!(instances.len(), 1, "{instances:?}");
        drop((slot, host));
        assert_eq!(own_instances(), Vec::<PathBuf>::new(), "still registered");
        assert!(!instances[0].exists(), "{} is left", instances[0].display());
        let id = instances[0].file_name().unwrap().to_str().unwrap();
        assert_eq!(cgroups_of(id), Vec::<PathBuf>::new());
    });
}

/// An empty file with the descriptor `number`, which is the status pipe's in a sandbox.
fn file_at(number: RawFd) -> File {
    let file = tempfile::tempfile().unwrap();
    // SAFETY: this process has opened nothing else with this number.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
    file
}

/// Whichever descriptor fails first, the run reports the failure or succeeds, and closes everything
/// it has opened.
#[test]
fn running_out_of_descriptors_is_reported_and_leaks_none() {
    in_own_process("leaks::running_out_of_descriptors_is_reported_and_leaks_none", || {
        let bait = file_at(3);
        let Some(host) = secluded_host() else { return };
        let slot = host.host_id();
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let shown = || Program::sh("cat").bind("/usr/share".as_ref(), "/shown", false);
        let run = || host.try_run_as(&slot, shown().stdin(StdinSource::Bytes(b"x".to_vec())));
        run().unwrap();
        let before = counts();
        let open = u64::try_from(before["descriptors"].len()).unwrap();
        let mut failures = 0;
        for spare in 0..60 {
            setrlimit(Resource::RLIMIT_NOFILE, open + spare, hard).unwrap();
            let result = run();
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
            match result {
                Ok(report) => assert_eq!(report.stdout.text(), "x"),
                Err(NotStarted::Setup(failure)) => {
                    assert_eq!(failure.errno, Some(libc::EMFILE), "{failure}");
                    failures += 1;
                }
                Err(other) => panic!("{other}"),
            }
            for (what, after) in counts() {
                assert_eq!(after, before[what], "{what} with {spare} descriptors to spare");
            }
        }
        assert!((5..50).contains(&failures), "{failures} of 60 runs failed");
        assert_eq!(bait.metadata().unwrap().len(), 0, "a child wrote into our descriptor 3");
    });
}

#[test]
fn mounts_of_a_live_sandbox_are_invisible_on_the_host() {
    in_own_process("leaks::mounts_of_a_live_sandbox_are_invisible_on_the_host", || {
        let Some(host) = secluded_host() else { return };
        let slot = host.host_id();
        let uid = slot.id();
        let before = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        // The sandbox is cloned from this thread, so another thread looks meanwhile.
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        let path = format!("/proc/self/task/{}/mountinfo", nix::unistd::gettid());
        let watcher = std::thread::spawn(move || {
            assert!(
                eventually(Duration::from_secs(20), || !processes_of(uid).is_empty()),
                "the run never began"
            );
            let during = fs::read_to_string(path).unwrap();
            drop(write);
            during
        });
        let program = Program::sh("cat; cat /proc/self/mountinfo")
            .stdin(StdinSource::Copied(read))
            .bind("/usr/share".as_ref(), "/shown", true)
            .tmpfs("/scratch", Some(MIB));
        let report = host.try_run_as(&slot, program).unwrap();
        let during = watcher.join().unwrap();
        assert_eq!(during, before);
        assert_eq!(fs::read_to_string("/proc/thread-self/mountinfo").unwrap(), before);
        let inside = support::stdout_of(&report);
        assert!(inside.contains(" /scratch ") && inside.contains(" /shown "), "{inside}");
        assert!(!inside.contains("shared:"), "mounts of a box spread: {inside}");
    });
}
