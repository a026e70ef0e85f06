//! A mounted workspace and a terminal without privileges.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cofferdam_sandbox::engine::enter_user_namespace;
use cofferdam_test_support::processes::in_own_process;
use cofferdam_test_support::{self as support, MIB, MountedFiles, Program, stdout_of};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Uid, fork, setgroups, setresgid, setresuid};

const NOBODY: u32 = 31_002;

/// Runs `body` as a user without privileges, in a process with one thread.
fn without_privileges(body: impl FnOnce()) {
    // SAFETY: this process runs no other test, so no other thread holds a lock of the allocator.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
        ForkResult::Child => {
            let done = catch_unwind(AssertUnwindSafe(|| {
                let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
                setgroups(&[]).unwrap();
                setresgid(gid, gid, gid).unwrap();
                setresuid(uid, uid, uid).unwrap();
                nix::sys::prctl::set_dumpable(true).unwrap();
                enter_user_namespace();
                body();
            }));
            // SAFETY: runs none of the handlers of the parent.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
    }
}

#[test]
fn a_mounted_workspace_and_a_terminal_work_without_privileges() {
    if !support::has("root", nix::unistd::geteuid().is_root()) {
        return;
    }
    let test = "mounted::unprivileged::a_mounted_workspace_and_a_terminal_work_without_privileges";
    in_own_process(test, || {
        without_privileges(|| {
            let Some(host) = support::host() else { return };
            let files = MountedFiles::new(&host, "/srv/project", MIB);
            let run = |program: Program| host.run_over(&files, program.workdir("/srv/project"));
            assert_eq!(
                stdout_of(&run(Program::sh("echo kept >file; echo x >/tmp/file; pwd"))),
                "/srv/project\n"
            );
            let script = "cat file /tmp/file; tty; stty size; echo own >/dev/tty; \
                          touch /srv/x /x /dev/x 2>/dev/null || echo closed";
            let text = stdout_of(&run(Program::sh(script).terminal(100, 30)));
            assert_eq!(text, "kept\r\nx\r\n/dev/pts/0\r\n30 100\r\nown\r\nclosed\r\n");
        });
    });
}
