//! On a host that lacks a feature, the other controls hold and the log names what is missing.

use std::collections::BTreeMap;

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use cofferdam_test_server::service::Setup;

#[test]
fn without_user_namespaces_a_run_has_its_host_uid_and_no_capability() {
    refuse_user_namespaces();
    let service = Setup::shell().start();
    let ids = service.run("id -u; grep -E '^(Cap|Groups|NoNew|Seccomp:)' /proc/self/status");
    let lines: Vec<String> =
        ids.stdout().lines().map(|line| line.split_whitespace().collect()).collect();
    let uid: u32 = lines[0].parse().unwrap();
    assert!(cofferdam_test_server::host::HOST_UIDS.contains(&uid), "{uid}");
    let none = "0000000000000000";
    let bare = ["Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"];
    let mut expected: Vec<String> = bare
        .iter()
        .map(|name| format!("{name}{}", if name.starts_with("Cap") { none } else { "" }))
        .collect();
    expected.extend(["NoNewPrivs:1".to_owned(), "Seccomp:2".to_owned()]);
    assert_eq!(lines[1..], expected);
    service.log.wait_for("no user namespace");
}

#[test]
fn without_clone3_runs_work_the_same() {
    refuse(libc::SYS_clone3, Vec::new(), libc::ENOSYS);
    let service = Setup::shell().start();
    let run = service.run("id -u; cat /proc/self/cgroup | grep -v ':/$'; true");
    assert_eq!(run.stdout(), "10001\n", "the sandbox sees its own groups as the roots");
}

/// From now on this thread and its children cannot create a user namespace.
fn refuse_user_namespaces() {
    let newuser = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    let has_flag =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(newuser), newuser);
    let rule = SeccompRule::new(vec![has_flag.unwrap()]).unwrap();
    refuse(libc::SYS_unshare, vec![rule], libc::EPERM);
}

/// From now on `call` fails with `errno` in this thread and its children, if one of `rules` matches
/// or `rules` is empty.
fn refuse(call: i64, rules: Vec<SeccompRule>, errno: i32) {
    let filter = SeccompFilter::new(
        BTreeMap::from([(call, rules)]),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.unsigned_abs()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}
