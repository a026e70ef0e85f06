//! What user code sees through `/run`. tests/sandbox and tests/hostile test the isolation itself.

use std::thread;

use cofferdam_test_server::client::{solution, solution_within};
use cofferdam_test_server::service::Setup;
use cofferdam_test_server::workspace::Workspace;

#[test]
fn a_program_has_uid_10001_and_no_groups_or_capabilities() {
    let service = Setup::shell().start();
    let stdout = service
        .run("id -u; id -g; id -G; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status")
        .stdout();
    let expected = "10001\n10001\n10001\n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
        CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n";
    assert_eq!(stdout, expected);
}

#[test]
fn the_environment_has_only_the_allowed_names() {
    let service = Setup::shell()
        .env("SECRET", "s3cret")
        .env("HOME", "/root")
        .env("TZ", "Asia/Tokyo")
        .env("GREETING", "naïve text")
        .env("RUN_ENV_ALLOW", "TZ, GREETING,NOT_SET")
        .start();
    let stdout =
        service.run("env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD= | sort").stdout();
    let mut lines: Vec<&str> = stdout.lines().collect();
    let path = lines.iter().position(|line| line.starts_with("PATH=/")).expect("a PATH");
    lines.remove(path);
    let expected =
        ["GREETING=naïve text", "HOME=/tmp/home", "LANG=C.UTF-8", "TMPDIR=/tmp", "TZ=Asia/Tokyo"];
    assert_eq!(lines, expected);
}

#[test]
fn the_working_directory_is_a_private_copy_of_the_workspace() {
    let workspace = Workspace::shell().with("lib/data.txt", "data").with("tool.sh", "echo tool");
    std::os::unix::fs::symlink("lib/data.txt", workspace.path().join("link")).unwrap();
    let service = Setup::of(workspace).start();
    let stdout = service
        .run("pwd; cat link; echo; readlink link; stat -c '%u:%g %n' check check/solution.py tool.sh")
        .stdout();
    let expected = "/workspace\ndata\nlib/data.txt\n\
        10001:10001 check\n10001:10001 check/solution.py\n10001:10001 tool.sh\n";
    assert_eq!(stdout, expected);
    let body =
        solution("stat -c '%u:%g' check/asserts.json; rm check/asserts.json && echo removed");
    let mut body = body;
    body["asserts"] = "[]".into();
    assert_eq!(service.post(&body).stdout(), "10001:10001\nremoved\n");
}

#[test]
fn writable_places_are_writable_and_the_root_is_not() {
    let service = Setup::shell().start();
    let script = "for place in . $HOME $TMPDIR /tmp check; do touch $place/x && echo $place; done; \
        touch /x /usr/x /etc/x 2>/dev/null || echo refused; ls -A /root /home /sys 2>/dev/null | wc -l";
    let finished = service.run(script).finished();
    assert_eq!(finished.stdout, ".\n/tmp/home\n/tmp\n/tmp\ncheck\nrefused\n0\n", "{finished:?}");
}

#[test]
fn a_sandbox_has_its_own_host_name_network_and_processes() {
    let service = Setup::shell().start();
    let script = "hostname; readlink /proc/self/fd/0; ls /sys/class/net 2>/dev/null; \
        cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '; ls -d /proc/[0-9]* | wc -l";
    let stdout = service.run(script).stdout();
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines[..3], ["sandbox", "/dev/null", "lo"], "{stdout}");
    assert!(lines[3].parse::<u32>().unwrap() < 10, "processes of others are visible: {stdout}");
}

#[test]
fn a_run_has_the_limits_of_the_contract() {
    let service = Setup::shell().start();
    let script = "ulimit -a | grep -E 'file|process|core|time' ";
    let stdout = service.post(&solution_within("1500ms", script)).stdout();
    let limit = |name: &str| {
        let line = stdout.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().last()).unwrap_or_default().to_owned()
    };
    assert_eq!(limit("time"), "2", "{stdout}");
    assert_eq!(limit("process"), "256", "{stdout}");
    assert_eq!(limit("nofiles"), "256", "{stdout}");
    assert_eq!(limit("coredump"), "0", "{stdout}");
    // In blocks of 512 bytes.
    assert_eq!(limit("file"), (64 * 1024 * 2).to_string(), "{stdout}");
}

#[test]
fn runs_at_the_same_time_do_not_see_each_other() {
    let service = Setup::shell().start();
    let script = |name: &str| {
        format!(
            "echo {name} >secret; echo {name} >/tmp/secret; sleep 1; cat secret /tmp/secret; \
             ls /tmp; ps -e 2>/dev/null | grep -c sleep"
        )
    };
    let expected = |name: &str| format!("{name}\n{name}\nhome\nsecret\n0\n");
    thread::scope(|scope| {
        let runs = ["left", "right"].map(|name| {
            let service = &service;
            (name, scope.spawn(move || service.run(&script(name)).finished()))
        });
        for (name, run) in runs {
            assert_eq!(run.join().unwrap().stdout, expected(name));
        }
    });
}

#[test]
fn two_runs_of_200_processes_each_both_succeed() {
    let service = Setup::shell().start();
    let script = "i=0; while [ $i -lt 200 ]; do sleep 3 & i=$((i+1)); done; echo $i; wait";
    thread::scope(|scope| {
        let runs = [(); 2].map(|()| scope.spawn(|| service.run(script).stdout()));
        for run in runs {
            assert_eq!(run.join().unwrap(), "200\n");
        }
    });
}

#[test]
fn a_run_does_not_see_files_of_the_run_before() {
    let workspace = Workspace::shell().with("data", "as shipped");
    let service = Setup::of(workspace).start();
    let script = "cat data; ls -A . /tmp $HOME check; echo changed >data; touch new check/new /tmp/new; \
        rm -f Makefile; chmod -R 0 check";
    let first = service.run(script).finished();
    for _ in 0..3 {
        assert_eq!(service.run(script).finished(), first);
    }
}
