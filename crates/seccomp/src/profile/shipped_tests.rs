//! The guarantees of the shipped profiles, call by call.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::interpret::{SeccompData, decide};
use crate::rules::Action;

use cofferdam_fixtures::answers::{PROFILES, Row, rows};

/// Calls that kernel vulnerabilities and sandbox escapes have used. No shipped profile allows any of
/// them with any arguments.
const NEVER: &str = "
    unshare setns clone3 mount umount2 pivot_root chroot fsopen fsmount fsconfig fspick move_mount
    open_tree open_tree_attr mount_setattr listmount statmount
    ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
    bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
    keyctl add_key request_key init_module finit_module delete_module kexec_load kexec_file_load
    iopl ioperm acct swapon swapoff reboot quotactl quotactl_fd syslog vhangup lookup_dcookie
    name_to_handle_at open_by_handle_at fanotify_init fanotify_mark openat2
    clock_settime clock_adjtime adjtimex settimeofday sethostname setdomainname
    modify_ldt uselib ustat sysfs _sysctl nfsservctl sync syncfs lsm_set_self_attr
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat
    file_setattr mbind migrate_pages move_pages set_mempolicy set_mempolicy_home_node
    memfd_secret process_mrelease remap_file_pages
";

/// The most instructions of each filter, and on its longest path. Whenever a sandbox installs a
/// filter, the kernel checks all instructions and runs one path per call number.
const CEILINGS: [(&str, usize, usize); 4] =
    [("default", 440, 72), ("init", 22, 10), ("network", 450, 72), ("strict-native", 240, 32)];

fn shipped(name: &str, arch: Arch) -> Profile {
    Profile::parse_for(arch, builtin_text(name).unwrap(), |base| {
        builtin_text(base).map(str::to_owned)
    })
    .unwrap()
}

/// The action of `filter` for call `number` of `arch`.
fn answer(filter: &Filter, arch: Arch, number: u32, args: [u64; 6]) -> Action {
    let data = SeccompData { number, arch: arch.audit(), instruction_pointer: 0, args };
    decide(filter, &data).unwrap()
}

/// An action in the words of the table.
fn word(action: Action) -> String {
    match action {
        Action::Allow => "allow".to_owned(),
        Action::Errno(errno) => format!("{errno:?}"),
        Action::Succeed => "done".to_owned(),
        Action::KillProcess => "kill".to_owned(),
        Action::Notify => "notify".to_owned(),
    }
}

#[test]
fn every_shipped_profile_loads_and_stays_small_on_every_architecture() {
    let mut measured = Vec::new();
    for name in Profile::builtin_names() {
        let filters = Arch::ALL.map(|arch| shipped(name, arch)).map(|profile| {
            assert_eq!((profile.name.as_str(), profile.filter.name.as_str()), (name, name));
            assert!(!profile.description.is_empty());
            profile.filter
        });
        let most = |of: fn(&Filter) -> usize| filters.iter().map(of).max().unwrap();
        measured.push((name, most(|filter| filter.program.len()), most(Filter::depth)));
    }
    let within = |((name, instructions, depth), (of, instructions_max, depth_max)): (&_, &_)| {
        (name, instructions <= instructions_max, depth <= depth_max) == (of, true, true)
    };
    assert_eq!(measured.len(), CEILINGS.len());
    assert!(measured.iter().zip(&CEILINGS).all(within), "{measured:?} beyond {CEILINGS:?}");
}

#[test]
fn the_table_has_every_call_of_every_architecture_under_its_number() {
    let rows = rows();
    for (index, arch) in Arch::ALL.into_iter().enumerate() {
        for row in &rows {
            assert_eq!(row.numbers[index], arch.number(&row.call), "line {}", row.line);
        }
        let named: BTreeSet<&str> = rows.iter().map(|row| row.call.as_str()).collect();
        let missing: Vec<_> =
            arch.calls().iter().filter(|(name, _)| !named.contains(name)).collect();
        assert!(missing.is_empty(), "{arch:?}: {missing:?}");
    }
}

#[test]
fn every_profile_for_programs_answers_as_the_table_says() {
    let filters = PROFILES.map(|name| Arch::ALL.map(|arch| shipped(name, arch).filter));
    let mut wrong = Vec::new();
    for row in rows() {
        let answers = filters.each_ref().map(|filters| answers_to(&row, filters));
        if answers != row.answers {
            wrong.push(format!("line {}: {} {}", row.line, row.call, answers.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "the profiles answer:\n{}", wrong.join("\n"));
    let others: Vec<_> = Profile::builtin_names().filter(|name| !PROFILES.contains(name)).collect();
    assert_eq!(others, ["init"], "a profile for programs needs its column");
}

/// A profile's answers to all combinations of `row` on all architectures: one word if all are equal,
/// else several.
fn answers_to(row: &Row, filters: &[Filter; 2]) -> String {
    let mut words = BTreeSet::new();
    for ((arch, number), filter) in Arch::ALL.into_iter().zip(row.numbers).zip(filters) {
        let Some(number) = number else { continue };
        words.extend(row.args.iter().map(|args| word(answer(filter, arch, number, *args))));
    }
    words.into_iter().collect::<Vec<_>>().join("/")
}

/// Calls that only flush data to disk.
const FLUSHES: [&str; 6] = ["fdatasync", "fsync", "msync", "sync", "sync_file_range", "syncfs"];

#[test]
fn a_disk_is_flushed_only_where_the_program_can_write_to_it() {
    for name in PROFILES {
        for arch in Arch::ALL {
            let profile = shipped(name, arch);
            for (call, number) in arch.calls() {
                for args in [[0; 6], [1; 6], [4; 6], [u64::MAX; 6]] {
                    let [without, with] = [false, true]
                        .map(|binds| answer(profile.filter_for(binds), arch, *number, args));
                    let same = without == with;
                    assert!(same || without == Action::Succeed, "{name} {arch:?} {call}");
                    assert!(same || FLUSHES.contains(call), "{name} {arch:?} {call}");
                    if ["fsync", "fdatasync"].contains(call) {
                        assert_eq!((without, with), (Action::Succeed, Action::Allow), "{name}");
                    }
                }
            }
        }
    }
}

#[test]
fn no_shipped_profile_allows_a_forbidden_call() {
    for name in Profile::builtin_names() {
        for arch in Arch::ALL {
            let filter = shipped(name, arch).filter;
            for call in NEVER.split_whitespace() {
                assert!(arch == Arch::Aarch64 || arch.number(call).is_some(), "{call}");
                let Some(number) = arch.number(call) else { continue };
                for args in [[0; 6], [1; 6], [u64::MAX; 6], [0x1000_0000; 6]] {
                    let action = answer(&filter, arch, number, args);
                    assert_ne!(action, Action::Allow, "{name} {arch:?} {call}");
                }
            }
        }
    }
}

/// The calls of each toolchain that builds and runs programs, and the answers to calls that are not
/// allowed.
const TOOLCHAINS: &str = include_str!("../../../../tests/sandbox/seccomp/toolchains.txt");

#[test]
fn the_default_profile_allows_what_every_toolchain_calls() {
    let mut calls_of = BTreeMap::<&str, Vec<&str>>::new();
    let mut told = BTreeMap::new();
    for line in TOOLCHAINS.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let mut words = line.split_whitespace();
        match words.next().unwrap() {
            "instead" => drop(told.insert(words.next().unwrap(), words.next().unwrap())),
            toolchain => calls_of.entry(toolchain).or_default().extend(words),
        }
    }
    assert!(calls_of.len() > 17, "{:?}", calls_of.keys());
    let rows = rows();
    let is_answered = |call: &str, index: usize, with: &str| {
        let mut of_call = rows.iter().filter(|row| row.call == call);
        of_call.any(|row| row.numbers[index].is_none() || row.answers[0] == with)
    };
    for (toolchain, calls) in &calls_of {
        for call in calls {
            let want = told.get(call).copied().unwrap_or("allow");
            for index in 0..Arch::ALL.len() {
                assert!(is_answered(call, index, want), "{toolchain}: {call} is not {want}");
            }
        }
    }
    let called: BTreeSet<&str> = calls_of.into_values().flatten().collect();
    let idle: Vec<_> = told.keys().filter(|call| !called.contains(*call)).collect();
    assert!(idle.is_empty(), "nobody calls {idle:?}");
}

#[test]
fn all_profiles_for_programs_show_the_same_root() {
    let [default, strict, network] = PROFILES.map(|name| shipped(name, Arch::NATIVE).root);
    assert_eq!(default, strict);
    assert_eq!(default, network);
    #[rustfmt::skip]
    let hidden = [
        "/boot", "/dev", "/home", "/lost+found", "/media", "/mnt", "/proc", "/root", "/run",
        "/srv", "/sys", "/tmp", "/var",
    ];
    for path in hidden {
        assert!(default.hide.iter().any(|hidden| hidden == path), "{path} is shown");
    }
    assert_eq!(
        default.devices,
        ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]
    );
}
