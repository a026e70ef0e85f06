//! A sandbox serves one run, and looks unused when that run begins.

use cofferdam_test_server::client::solution;
use cofferdam_test_server::host::Process;
use cofferdam_test_server::service::{Setup, wait_until};
use cofferdam_test_server::workspace::Workspace;
use serde_json::{Value, json};

use crate::ready::{OVERLAID_FILES, PATIENCE, run_in_ready, shell_with, wait_ready};

/// Consecutive runs, each in a prepared sandbox.
const ROUNDS: usize = 8;

/// Prints every place in which a run could leave something, and leaves something in each.
const LEAVE: &str = r#"
find . /tmp /dev/shm -printf '%M %U:%G %n %s %p\n' | sort
cat data; set -- /proc/[0-9]*; echo "$# processes"; tail -n +2 /proc/sysvipc/shm | wc -l
echo changed >data; echo new >new; echo new >check/new; echo new >/tmp/new; echo new >"$HOME/new"
echo new >/dev/shm/new; rm Makefile check/asserts.json; chmod 700 check
python3 -IS -c 'import ctypes; assert ctypes.CDLL(None).shmget(4711, 4096, 0o1600) >= 0'
cat /proc/net/unix /proc/net/tcp /proc/net/udp /proc/net/dev /proc/net/sockstat /proc/net/snmp \
    /proc/net/netstat 2>&1 | sed 's/^sockets: used .*//; s/ alloc .*//; s/ mem [0-9]*//; s/^[0-9a-f]*: //;
        s/ orphan [0-9]*//' # Orphans are those of the whole host.
python3 -IS -c '
import os, socket
kept = []
def tried(call):
    try: return call()
    except OSError as error: print(error.strerror)
for name in (b"\\0mine", "/tmp/socket"):
    one = tried(lambda: socket.socket(socket.AF_UNIX))
    if one and not tried(lambda: (one.bind(name), one.listen())): continue
    kept.append(one)
listener = tried(lambda: socket.create_server(("127.0.0.1", 4711)))
if listener:
    kept += [listener, socket.create_connection(("127.0.0.1", 4711)), listener.accept()[0]]
datagrams = tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
if datagrams: tried(lambda: datagrams.sendto(b"x", ("127.0.0.1", 4712)))
print(len(kept), "sockets")
'
setsid sleep 60 >/dev/null 2>&1 & (sleep 60 >/dev/null 2>&1 &)
"#;

fn leave() -> Value {
    let mut body = solution(LEAVE);
    body["asserts"] = "[]".into();
    body
}

fn assert_each_is_used_once(workspace: Workspace) {
    let setup = Setup::of(workspace.with("data", "as shipped\n")).env("STANDBY_MAX", "2");
    let service = setup.start();
    // Created for the request, because none was prepared.
    let first = service.post(&leave()).stdout();
    for part in [
        "-rw-r--r-- 10001:10001 1 2 ./check/asserts.json\n",
        "drwxr-xr-x 10001:10001 2 40 /tmp/home\n",
        "as shipped\n",
        "\n2 processes\n0\n",
    ] {
        assert!(first.contains(part), "{part:?} is not in {first}");
    }
    let mut used: Vec<Process> = Vec::new();
    for round in 0..ROUNDS {
        let ready = wait_ready(&service, 1);
        assert!(!used.contains(&ready[0]), "a used sandbox is ready again");
        assert_eq!(run_in_ready(&service, &leave()).stdout(), first, "round {round}");
        wait_until("the sandbox to end", PATIENCE, || !ready[0].is_alive());
        used.extend(ready);
    }
}

#[test]
fn a_run_sees_nothing_of_the_run_before_in_a_copied_workspace() {
    assert_each_is_used_once(Workspace::shell());
}

#[test]
fn a_run_sees_nothing_of_the_run_before_in_an_overlaid_workspace() {
    let workspace = Workspace::shell();
    for number in 0..OVERLAID_FILES {
        workspace.put(&format!("lib/{number}"), "one of many");
    }
    assert_each_is_used_once(workspace);
}

#[test]
fn concurrent_runs_each_have_their_own_sandbox() {
    let service = shell_with(4).env("RUN_CONCURRENCY", "4").start();
    let script = "ls -A /tmp check; echo $$ >/tmp/mine; sleep 0.1; ls -A /tmp";
    for _ in 0..10 {
        std::thread::scope(|scope| {
            let runs = [(); 4].map(|()| scope.spawn(|| service.run(script).stdout()));
            for run in runs {
                assert_eq!(run.join().unwrap(), "/tmp:\nhome\n\ncheck:\nsolution.py\nhome\nmine\n");
            }
        });
    }
    wait_ready(&service, 4);
}

#[test]
fn posted_files_belong_to_the_tenant_and_replace_those_of_the_template() {
    let workspace = Workspace::shell()
        .with("check/solution.py", "from the template")
        .with("check/asserts.json", "from the template")
        .with("check/other", "from the template");
    for files in [0, OVERLAID_FILES] {
        for number in 0..files {
            workspace.put(&format!("lib/{number}"), "one of many");
        }
        let setup = Setup::inside(workspace.path()).arg("--workspace").arg(workspace.path());
        let service = setup.env("STANDBY_MAX", "1").start();
        let script = "stat -c '%a %u:%g %h %n' check check/*; cat check/asserts.json check/other";
        let body = json!({ "lang_slug": "python", "solution_text": script, "asserts": "[4711]" });
        let made = service.post(&body).stdout();
        assert_eq!(run_in_ready(&service, &body).stdout(), made);
        let expected = "644 10001:10001 1 check/asserts.json\n644 10001:10001 1 check/other\n\
            644 10001:10001 1 check/solution.py\n[4711]from the template";
        let (_, seen) = made.split_once('\n').unwrap();
        assert_eq!(seen, expected, "{files} files beside them");
    }
}
