//! What is left of runs once they are over: nothing.

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

/// A sandbox in a mount namespace in which only this thread mounts and makes
/// temporary files, so that every difference is the sandbox's doing. Mounts
/// made in a namespace cloned from this one would spread back into it.
fn secluded_host() -> Option<Host> {
    // Says whether there can be one; what it opened was opened elsewhere.
    drop(support::host()?);
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    mount(Some("tmpfs"), "/tmp", Some("tmpfs"), MsFlags::empty(), none).unwrap();
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SHARED, none).unwrap();
    support::host()
}

/// What of this process and the host can be counted.
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

/// Every way a run can go, and its outcome's word.
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
fn nothing_is_left_of_two_hundred_runs() {
    in_own_process("leaks::nothing_is_left_of_two_hundred_runs", || {
        let Some(host) = secluded_host() else { return };
        let slot = host.host_id();
        // What is made once and kept, such as the init's program file.
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

/// An empty file whose number is `number`: that of the status pipe, in a box.
fn file_at(number: RawFd) -> File {
    let file = tempfile::tempfile().unwrap();
    // SAFETY: in a process that has opened nothing yet, the number is nobody's.
    assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), number) }, number);
    file
}

/// Whatever descriptor is the first that cannot be had: the run fails by name
/// or is well, and everything made before is given back.
#[test]
fn a_shortage_of_descriptors_is_told_and_costs_none() {
    in_own_process("leaks::a_shortage_of_descriptors_is_told_and_costs_none", || {
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
fn mounts_of_a_live_box_do_not_show_on_the_host() {
    in_own_process("leaks::mounts_of_a_live_box_do_not_show_on_the_host", || {
        let Some(host) = secluded_host() else { return };
        let slot = host.host_id();
        let uid = slot.id();
        let before = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        // The box is cloned from this very thread; another one looks in the meantime.
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
