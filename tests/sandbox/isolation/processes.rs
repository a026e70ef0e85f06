//! A program sees and reaches only its own processes.

use std::fs;

use cofferdam_test_support::{self as support, Program, lines_of, stdout_of};

#[test]
fn proc_shows_the_init_and_the_programs_own_processes_only() {
    let Some(host) = support::host() else { return };
    let mut beside = host.start(Program::sh("echo up; cat"));
    beside.wait_for("up\n");
    let report = host.run(Program::python(
        "import os\n\
         print(*sorted(int(name) for name in os.listdir('/proc') if name.isdigit()))\n\
         print(os.getpid(), os.getppid())\n",
    ));
    assert_eq!(lines_of(&report), ["1 2", "2 1"]);
    beside.finish();
}

#[test]
fn the_init_cannot_be_signalled_traced_or_read() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::python(
        "import ctypes, errno, os, signal\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         def attempt(name, call):\n\
         \u{20}   try: call(); print(name, 'worked')\n\
         \u{20}   except OSError as error: print(name, errno.errorcode[error.errno])\n\
         def ptrace(request):\n\
         \u{20}   if libc.ptrace(request, 1, 0, 0) < 0: raise OSError(ctypes.get_errno(), '')\n\
         for name in 'KILL', 'STOP', 'TERM', 'SEGV':\n\
         \u{20}   attempt(name, lambda: os.kill(1, getattr(signal, 'SIG' + name)))\n\
         attempt('attach', lambda: ptrace(16))\n\
         attempt('seize', lambda: ptrace(0x4206))\n\
         for name in 'mem', 'environ', 'maps', 'auxv', 'syscall', 'stack':\n\
         \u{20}   attempt(name, lambda: open('/proc/1/' + name, 'rb').read(1))\n\
         for name in 'exe', 'cwd', 'root':\n\
         \u{20}   attempt(name, lambda: os.readlink('/proc/1/' + name))\n\
         attempt('fd', lambda: os.listdir('/proc/1/fd'))\n\
         attempt('memory', lambda: open('/proc/1/mem', 'wb'))\n\
         attempt('oom', lambda: open('/proc/1/oom_score_adj', 'w').write('1000'))\n",
    ));
    let answers = lines_of(&report);
    assert_eq!(answers.len(), 18, "{answers:?}");
    for answer in answers {
        let refused = ["EPERM", "EACCES", "EROFS"].iter().any(|errno| answer.ends_with(errno));
        assert!(refused, "{answer}");
    }
}

/// Observed from the host, since init is invisible from inside.
#[test]
fn the_init_keeps_one_descriptor_and_no_capability() {
    let Some(host) = support::host() else { return };
    let mut run = host.start(Program::sh("echo up; cat"));
    run.wait_for("up\n");
    let init = format!("/proc/{}", support::processes::init_of(run.host_uid));
    let status = fs::read_to_string(format!("{init}/status")).unwrap();
    for line in ["CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{line} is not in {status}");
    }
    let descriptors = fs::read_dir(format!("{init}/fd")).unwrap();
    let names: Vec<_> = descriptors.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["3"], "the status pipe");
    assert_eq!(fs::read(format!("{init}/environ")).unwrap(), b"");
    run.finish();
}

#[test]
fn a_signal_to_all_processes_reaches_only_those_of_the_program() {
    let Some(host) = support::host() else { return };
    let mut beside = host.start(Program::sh("echo up; cat; echo alive"));
    beside.wait_for("up\n");
    let report = host.run(Program::python(
        "import os, signal, time\n\
         child = os.fork()\n\
         if child == 0: time.sleep(60)\n\
         os.kill(-1, signal.SIGKILL)\n\
         print(os.WTERMSIG(os.waitpid(child, 0)[1]))\n",
    ));
    assert_eq!(stdout_of(&report), "9\n");
    assert_eq!(lines_of(&beside.finish()), ["up", "alive"]);
}

#[test]
fn no_pid_refers_to_a_process_outside() {
    let Some(host) = support::host() else { return };
    let mut beside = host.start(Program::sh("echo up; cat; echo alive"));
    beside.wait_for("up\n");
    let report = host.run(Program::python(
        "import os\n\
         def there(pid):\n\
         \u{20}   try: os.kill(pid, 0); return True\n\
         \u{20}   except ProcessLookupError: return False\n\
         \u{20}   except PermissionError: return True\n\
         print(*[pid for pid in range(1, 65536) if there(pid)])\n",
    ));
    assert_eq!(stdout_of(&report), "1 2\n");
    assert_eq!(lines_of(&beside.finish()), ["up", "alive"]);
}

#[test]
fn orphans_are_adopted_and_reaped_by_the_init() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::python(
        "import os, time\n\
         read, write = os.pipe()\n\
         if os.fork() == 0:\n\
         \u{20}   if os.fork() == 0:\n\
         \u{20}       while os.getppid() != 1: time.sleep(0.001)\n\
         \u{20}       os.write(write, b'adopted')\n\
         \u{20}   os._exit(0)\n\
         os.wait()\n\
         os.close(write)\n\
         print(os.read(read, 100).decode(), os.read(read, 1))\n\
         while len([name for name in os.listdir('/proc') if name.isdigit()]) > 2: time.sleep(0.001)\n\
         print('reaped')\n",
    ));
    assert_eq!(lines_of(&report), ["adopted b''", "reaped"]);
}
