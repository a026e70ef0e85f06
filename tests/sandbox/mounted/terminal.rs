//! Programs with a controlling terminal.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_core::sync::input_queue::InputQueue;
use cofferdam_core::sync::run_control::{ControlError, RunControl, TerminalSize};
use cofferdam_core::{Outcome, RunReport, StdinSource};
use cofferdam_test_support::live::Live;
use cofferdam_test_support::processes::{eventually, processes_of};
use cofferdam_test_support::{
    self as support, Host, MIB, MountedFiles, Program, ending, stdout_of,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// A program at a terminal that the test types at.
struct Typed {
    keys: Arc<InputQueue>,
    control: RunControl,
    run: Live,
}

impl Typed {
    fn start(host: &Host, argv: &[&str]) -> Self {
        let files = MountedFiles::new(host, "/workspace", 16 * MIB);
        let keys = Arc::new(InputQueue::new().unwrap());
        let control = RunControl::new().unwrap();
        let program = Program::new(argv)
            .env(&["PATH=/usr/bin:/bin", "HOME=/tmp/home", "TERM=xterm", "PS1=ready\\#>"])
            .terminal(100, 30)
            .stdin(StdinSource::Queue(Arc::clone(&keys)))
            .control(&control);
        Self { run: host.start_over(&files, program), keys, control }
    }

    /// An interactive shell with job control.
    fn shell(host: &Host) -> Self {
        let mut shell = Self::start(host, &["/bin/bash", "--norc", "--noprofile", "-i"]);
        shell.run.wait_for("ready1>");
        assert!(!shell.run.seen().contains("job control"), "{}", shell.run.seen());
        shell
    }

    fn keys(&self, keys: &str) {
        self.keys.write(keys.as_bytes()).unwrap();
    }

    /// Types a command whose output is `text`, which its echo does not contain.
    #[track_caller]
    fn says(&mut self, command: &str, text: &str) {
        self.keys(command);
        self.run.wait_for(text);
    }
}

fn at_terminal(host: &Host, program: Program) -> RunReport {
    let files = MountedFiles::new(host, "/workspace", MIB);
    host.run_over(&files, program.terminal(100, 30))
}

#[test]
fn all_three_streams_are_the_controlling_terminal_with_its_size() {
    let Some(host) = support::host() else { return };
    let script = "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; \
                  echo out; echo err >&2; echo own >/dev/tty; stat -c '%U %a' $(tty); \
                  test -c /dev/ptmx && test -L /dev/ptmx && echo ptmx";
    let report = at_terminal(&host, Program::sh(script));
    let text = stdout_of(&report);
    let lines: Vec<&str> = text.split("\r\n").collect();
    let (owner, all) = (lines[6], &lines[..6]);
    assert_eq!(all, ["/dev/pts/0", "30 100", "all", "out", "err", "own"]);
    assert!(owner.ends_with(" 620"), "{owner}");
    assert_eq!(lines[7], "ptmx");
    assert_eq!((report.stderr.bytes_total, report.stdout.bytes_total), (0, text.len() as u64));
    let control = Program::python("import os; print(os.fstat(0).st_uid == os.getuid() == 10001)");
    assert_eq!(stdout_of(&at_terminal(&host, control)), "True\r\n");
}

#[test]
fn a_sandbox_without_a_terminal_has_no_part_of_one() {
    let Some(host) = support::host() else { return };
    let script = "ls -d /dev/pts /dev/ptmx /dev/tty 2>/dev/null; tty; :";
    let files = MountedFiles::new(&host, "/workspace", MIB);
    assert_eq!(stdout_of(&host.run_over(&files, Program::sh(script))), "not a tty\n");
    let refused = host.try_run(Program::sh(script).terminal(80, 24)).unwrap_err();
    assert_eq!(refused.to_string(), "sandbox: terminal: the workspace is not a mounted one");
}

/// A job is one process, since of a shell that forks another only one may be stopped, and prints
/// something, which shows that it has the terminal. A line is typed only at a prompt, which counts
/// the commands: the shell drops what is typed while it ends a job.
#[test]
fn a_shell_has_job_control() {
    let Some(host) = support::host() else { return };
    let mut shell = Typed::shell(&host);
    shell.says("sh -c 'echo ru\"\"nning; read line'\n", "running");
    shell.says("\u{3}", "ready2>");
    shell.says("echo af\"\"ter=$?\n", "after=130");
    shell.says("", "ready3>");
    shell.says("sh -c 'kill -STOP $$; echo went\"\" on'\n", "ready4>");
    assert!(shell.run.seen().contains("Stopped"), "{}", shell.run.seen());
    shell.says("fg\n", "went on");
    shell.says("", "ready5>");
    shell.says("sh -c 'echo wai\"\"ting; read line'\n", "waiting");
    shell.says("\u{1a}", "ready6>");
    shell.says("exit 7\n", "There are stopped jobs");
    shell.says("", "ready7>");
    shell.keys("exit 7\n");
    let report = shell.run.join();
    assert_eq!(report.outcome, Outcome::Exited { code: 7 }, "{}", report.stdout.text());
}

#[test]
fn signals_of_keys_go_to_the_foreground_group_and_others_to_the_shell() {
    let Some(host) = support::host() else { return };
    let mut shell = Typed::shell(&host);
    shell.says("sh -c 'echo be\"\"gun; read line'\n", "begun");
    shell.control.signal_foreground(libc::SIGINT).unwrap();
    shell.says("", "ready2>");
    shell.says("echo co\"\"de=$?\n", "code=130");
    shell.says("", "ready3>");
    shell.says("sh -c 'echo ag\"\"ain; read line'\n", "again");
    shell.control.signal_foreground(libc::SIGTSTP).unwrap();
    shell.says("", "ready4>");
    assert!(shell.run.seen().contains("Stopped"), "{}", shell.run.seen());
    let refused = shell.control.signal_foreground(libc::SIGUSR1);
    assert_eq!(refused, Err(ControlError::Refused(libc::EINVAL)));
    let uid = shell.run.host_uid;
    // The shell misses a signal that comes right before it waits for a key.
    let control = shell.control.clone();
    assert!(eventually(PATIENCE, || control.signal(libc::SIGHUP) == Err(ControlError::Ended)));
    assert_eq!(shell.run.join().outcome, Outcome::Signaled { signal: libc::SIGHUP });
    assert_eq!(processes_of(uid), [""; 0]);
}

#[test]
fn a_resize_is_seen_and_told() {
    let Some(host) = support::host() else { return };
    let script = "trap 'echo changed; stty size' WINCH; echo up; while :; do sleep 0.05; done";
    let mut typed = Typed::start(&host, &["/bin/sh", "-c", script]);
    typed.run.wait_for("up");
    typed.control.resize(TerminalSize { columns: 132, rows: 43 }).unwrap();
    typed.run.wait_for("changed\r\n43 132");
    typed.run.cancel();
}

#[test]
fn the_end_of_the_queue_is_typed_as_the_character_that_the_terminal_has_for_it() {
    let Some(host) = support::host() else { return };
    for script in ["cat; echo ended", "stty eof ^X; echo set; cat; echo ended"] {
        let mut typed = Typed::start(&host, &["/bin/sh", "-c", script]);
        if script.contains("stty") {
            typed.run.wait_for("set");
        }
        typed.says("line\n", "line\r\nline\r\n");
        typed.keys.close();
        typed.run.wait_for("ended");
        assert_eq!(typed.run.join().outcome, Outcome::Exited { code: 0 }, "{script}");
    }
}

#[test]
fn output_of_any_size_reaches_the_report_whole() {
    let Some(host) = support::host() else { return };
    let lines: String = (1..=20_000).map(|number| format!("{number}\r\n")).collect();
    for tail in ["", "; (sleep 60 &)", "; setsid sh -c 'trap \"\" HUP; sleep 60' &"] {
        let program = Program::sh(&format!("seq 1 20000{tail}"));
        assert_eq!(stdout_of(&at_terminal(&host, program)), lines, "{tail}");
    }
    let flood = Program::sh("head -c 3000000 /dev/zero | tr '\\0' x").dropping(1000, 0);
    let report = at_terminal(&host, flood);
    assert_eq!(ending(&report), ("exited", Some(0)));
    assert_eq!((report.stdout.bytes.len(), report.stdout.bytes_total), (1000, 3_000_000));
}

#[test]
fn programs_inside_open_terminals_of_their_own() {
    let Some(host) = support::host() else { return };
    let spawn = "import os, pty\n\
                 status = pty.spawn(['sh', '-c', 'tty; stty size; exit 3'])\n\
                 print(os.waitstatus_to_exitcode(status))\n";
    let text = stdout_of(&at_terminal(&host, Program::python(spawn)));
    assert_eq!(text, "/dev/pts/1\r\n0 0\r\n3\r\n");
    if support::has("script", std::path::Path::new("/usr/bin/script").exists()) {
        let script = "script -q -e -c 'tty; exit 5' /dev/null; echo $?";
        let text = stdout_of(&at_terminal(&host, Program::sh(script)));
        assert_eq!(text.replace('\r', ""), "/dev/pts/1\n5\n");
    }
    let many = "import os\n\
                opened = []\n\
                try:\n\
                \u{20}   while True: opened.append(os.openpty())\n\
                except OSError as error: print(len(opened), error.errno)\n";
    let text = stdout_of(&at_terminal(&host, Program::python(many)));
    assert_eq!(text, format!("63 {}\r\n", libc::ENOSPC));
}

#[test]
fn nothing_types_into_a_terminal_but_its_keys() {
    let Some(host) = support::host() else { return };
    let source = "import errno, fcntl\n\
                  for command, argument in (0x5412, b'x'), (0x541c, b'\\x03'):\n\
                  \u{20}   for path in '/dev/tty', '/dev/pts/0':\n\
                  \u{20}       try: fcntl.ioctl(open(path, 'r+b', 0), command, argument); print('ok')\n\
                  \u{20}       except OSError as error: print(errno.errorcode[error.errno])\n";
    assert_eq!(stdout_of(&at_terminal(&host, Program::python(source))), "EPERM\r\n".repeat(4));
}

#[test]
fn a_terminal_ends_with_its_sandbox_whatever_holds_it() {
    let Some(host) = support::host() else { return };
    let files = MountedFiles::new(&host, "/workspace", MIB);
    let script = "trap '' HUP TERM INT; setsid sh -c 'trap \"\" HUP; sleep 60' </dev/tty & \
                  echo up; kill -STOP $$; sleep 60";
    let limited = Program::sh(script).limits(|limits| limits.wall = Duration::from_millis(700));
    let report = host.run_over(&files, limited.terminal(80, 24));
    assert_eq!(ending(&report), ("timed_out", None));
    assert_eq!(report.stdout.text(), "up\r\n");
    assert_eq!(processes_of(files.host_id().id()), [""; 0]);
}
