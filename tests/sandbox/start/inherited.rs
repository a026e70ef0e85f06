//! What a program does not inherit from the server: its priorities and limits.

use cofferdam_test_support::processes::in_own_process;
use cofferdam_test_support::{self as support, Program, lines_of, stdout_of};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

const IOPRIO_WHO_PROCESS: libc::c_int = 1;
/// The best-effort class, level 7.
const IOPRIO_LAST: libc::c_int = (2 << 13) | 7;
/// The real-time class, level 0.
const IOPRIO_FIRST: libc::c_int = 1 << 13;

/// Gives this thread, which creates the sandboxes, a scheduling class, a nice value and an I/O
/// priority.
#[track_caller]
fn schedule(class: libc::c_int, priority: libc::c_int, nice: libc::c_int, io: libc::c_int) {
    // SAFETY: `priority` is live, and the kernel reads nothing else of a struct sched_param. The
    // other calls take integers only.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_sched_setscheduler, 0, class, &raw const priority),
            libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, 0, nice),
            libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, io),
        ]
    };
    assert_eq!(results, [0; 3], "class {class} {:?}", std::io::Error::last_os_error());
}

/// Prints scheduling class, nice value and I/O priority of itself and of a child.
fn look() -> Program {
    Program::python(&format!(
        "import ctypes, os\n\
         def look():\n\
         \u{20}   io = ctypes.CDLL(None).syscall({}, {IOPRIO_WHO_PROCESS}, 0)\n\
         \u{20}   print(os.sched_getscheduler(0), os.nice(0), io, flush=True)\n\
         look()\n\
         if os.fork() == 0: look(); os._exit(0)\n\
         os.wait()\n",
        libc::SYS_ioprio_get
    ))
}

#[test]
fn a_run_does_not_inherit_the_servers_scheduling_class_or_priorities() {
    let test =
        "start::inherited::a_run_does_not_inherit_the_servers_scheduling_class_or_priorities";
    in_own_process(test, || {
        let Some(host) = support::host() else { return };
        let can = caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_SYS_NICE);
        if !support::has("CAP_SYS_NICE", can.unwrap()) {
            return;
        }
        for (class, priority, nice, io) in [
            (libc::SCHED_FIFO, 1, -5, IOPRIO_FIRST),
            (libc::SCHED_RR, 1, 5, IOPRIO_LAST),
            (libc::SCHED_BATCH, 0, -5, IOPRIO_FIRST),
            (libc::SCHED_IDLE, 0, 19, IOPRIO_LAST),
        ] {
            schedule(class, priority, nice, io);
            let lines = lines_of(&host.run(look()));
            assert_eq!(lines, ["0 0 0"; 2], "from class {class}");
        }
    });
}

/// A server without the privilege to raise its priority keeps the one it was given.
#[test]
fn a_server_without_the_privilege_runs_programs_at_its_own_priority() {
    let test = "start::inherited::a_server_without_the_privilege_runs_programs_at_its_own_priority";
    in_own_process(test, || {
        let Some(host) = support::host() else { return };
        schedule(libc::SCHED_IDLE, 0, 19, IOPRIO_LAST);
        // The next exec of root does not restore a capability that is not in the bounding set.
        for set in [caps::CapSet::Bounding, caps::CapSet::Effective] {
            caps::drop(None, set, caps::Capability::CAP_SYS_NICE).unwrap();
        }
        let lines = lines_of(&host.run(look()));
        assert_eq!(lines, ["5 19 0"; 2], "SCHED_IDLE is 5");
    });
}

#[test]
fn a_run_cannot_raise_its_priority() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::python(
        "import errno, os, resource as r\n\
         def refused(call, *arguments):\n\
         \u{20}   try: call(*arguments); print('done')\n\
         \u{20}   except OSError as error: print(errno.errorcode[error.errno])\n\
         refused(os.nice, -1)\n\
         for kind in os.SCHED_FIFO, os.SCHED_RR: refused(os.sched_setscheduler, 0, kind, os.sched_param(1))\n\
         print(r.getrlimit(13), r.getrlimit(14))\n",
    ));
    assert_eq!(lines_of(&report), ["EPERM", "EPERM", "EPERM", "(0, 0) (0, 0)"]);
}

/// The limits that the kernel numbers 8 (locked memory), 11 (pending signals),
/// 12 (message queues) and 15 (real-time microseconds).
const LIMITS: &str = "import resource as r\n\
    for limit in 8, 11, 12, 15: print(*r.getrlimit(limit))\n";

#[test]
fn a_run_does_not_inherit_the_servers_process_limits() {
    let test = "start::inherited::a_run_does_not_inherit_the_servers_process_limits";
    in_own_process(test, || {
        // Soft limits below those of a run, which must not show in it.
        for resource in [Resource::RLIMIT_MEMLOCK, Resource::RLIMIT_SIGPENDING] {
            let (_, hard) = getrlimit(resource).unwrap();
            setrlimit(resource, 1, hard).unwrap();
        }
        let Some(host) = support::host() else { return };
        let seen = stdout_of(&host.run(Program::python(LIMITS)));
        assert_eq!(seen, "8388608 8388608\n4096 4096\n819200 819200\n1000000 1000000\n");
    });
}

#[test]
fn a_lower_hard_limit_of_the_server_caps_the_limit_of_a_run() {
    let test = "start::inherited::a_lower_hard_limit_of_the_server_caps_the_limit_of_a_run";
    in_own_process(test, || {
        setrlimit(Resource::RLIMIT_MEMLOCK, 65_536, 65_536).unwrap();
        setrlimit(Resource::RLIMIT_SIGPENDING, 100, 100).unwrap();
        let Some(host) = support::host() else { return };
        let seen = stdout_of(&host.run(Program::python(LIMITS)));
        assert_eq!(seen, "65536 65536\n100 100\n819200 819200\n1000000 1000000\n");
    });
}
