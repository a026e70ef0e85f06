//! Calls whose effect depends on an argument: commands of `ioctl`, `prctl` and `fcntl`,
//! socket options, disk flushes.

use std::fs;
use std::thread;
use std::time::Duration;

use cofferdam_test_server::client::post;

use super::answers::{Expected, OK, answers_in, answers_told};
use crate::Unexercised;
use crate::exec::SharedDirectory;
use crate::observe::{assert_answers, observed};
use crate::probe::Probe;
use crate::target::Target;

/// Commands on any file.
const ON_FILES: &[&str] = &[
    "uuid",
    "sysfs-path",
    "add-key",
    "remove-key",
    "key-status",
    "set-policy",
    "get-policy",
    "enable-verity",
    "get-flags",
    "set-flags",
    "get-attributes",
    "extents",
    "clone",
    "freeze",
    "trim",
];
/// Commands on a socket; the first four load kernel modules unless a filter refuses them.
const ON_SOCKETS: &[&str] = &[
    "get-vlan",
    "set-vlan",
    "get-bridge",
    "add-bridge",
    "set-owner",
    "set-flags-of-lo",
    "add-multicast",
    "ethtool",
    "open-unix-file",
    "private",
];
const ON_PROCESSES: &[&str] = &[
    "merge-memory",
    "merge-memory-high-bit",
    "merged-memory",
    "share-core",
    "dispatch",
    "restore-timers",
    "mergeable",
];
const ALLOWED: &[&str] =
    &["FIONREAD", "FIOCLEX", "SIOCGIFADDR", "F_SETPIPE_SZ", "F_GETFL", "PR_SET_NAME", "MADV_FREE"];

pub fn refused(target: &Target) -> Result<(), Unexercised> {
    const NO_SUCH_COMMAND: &[&str] = &["ENOTTY"];
    Expected::default()
        .each("root-", ON_FILES, NO_SUCH_COMMAND)
        .each("own-", ON_FILES, NO_SUCH_COMMAND)
        .each("socket-", ON_SOCKETS, NO_SUCH_COMMAND)
        .all(&["pidfd-information", "pidfd-namespace"], NO_SUCH_COMMAND)
        .all(ON_PROCESSES, &["EINVAL"])
        .each("allowed-", ALLOWED, OK)
        .hold(answers_told(&target.observe(&Probe::c("commands"))));
    Ok(())
}

/// Tries leases also in a host directory, whose users would wait for the lease to end.
pub fn notices(target: &Target) -> Result<(), Unexercised> {
    const REFUSED: &str = "EINVAL";
    let shared = SharedDirectory::new();
    let expected = [
        ("own", "done"),
        ("write-lease", REFUSED),
        ("no-lease", REFUSED),
        ("read-lease", REFUSED),
        ("lease-of", REFUSED),
        ("notify", REFUSED),
        ("notify-root", REFUSED),
        ("signal", REFUSED),
        ("owner", REFUSED),
        ("usual-owner", "done"),
    ];
    assert_answers(&shared.probe(target.own()?, "notices", &["/out"]), &expected);
    Ok(())
}

/// The number of flushes that the program asks for.
const FLUSHES: u64 = 2000;

pub fn flushes(target: &Target) -> Result<(), Unexercised> {
    const EVERY: &[&str] = &[
        "fsync",
        "fdatasync",
        "msync",
        "fsync-pipe",
        "fdatasync-pipe",
        "range-pipe",
        "msync-nothing",
        "syncfs",
    ];
    let flush = Probe::c("flush").arg("/etc/passwd").arg(FLUSHES.to_string());
    let before = flushed();
    let told = answers_told(&target.observe(&flush));
    Expected::default().all(EVERY, &["done"]).hold(told);
    let own = target.own()?;
    let flushed = flushed().saturating_sub(before);
    assert!(flushed < FLUSHES, "the host's disks were flushed {flushed} times");
    // A program that can write to host files can also flush them.
    let shared = SharedDirectory::new();
    shared.put("file", b"to be kept");
    let kept = shared.probe(own, "flush", &["/out/file", "1"]);
    let real = [
        ("fsync", "done"),
        ("fdatasync", "done"),
        ("msync", "done"),
        ("fsync-pipe", "EINVAL"),
        ("fdatasync-pipe", "EINVAL"),
        ("range-pipe", "ESPIPE"),
        ("msync-nothing", "ENOMEM"),
        ("syncfs", "ENOSYS"),
    ];
    assert_answers(&kept, &real);
    Ok(())
}

/// The completed flushes of all host disks, which the kernel counts since Linux 5.5.
fn flushed() -> u64 {
    let disks = fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let count = |line: &str| line.split_whitespace().nth(18)?.parse::<u64>().ok();
    disks.lines().filter_map(count).sum()
}

/// Longer than the kernel waits before it announces that a group was left.
const REPORTED_WITHIN_SECONDS: u64 = 3;
/// How long the cleanup of a run may take on a busy machine.
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(200);
const TRIES: usize = 5;

pub fn multicast(target: &Target) -> Result<(), Unexercised> {
    const JOINS: &[&str] = &["join", "join-tcp", "join-source", "join-any", "join-any-source"];
    /// Without IPv6 on the host, a sandbox has none either.
    const JOINS_6: &[&str] = &["join6", "join6-any", "anycast"];
    let join = Probe::python("groups").arg("join").arg(0);
    let joined = target.observe(&join);
    Expected::default()
        .all(JOINS, &["ENODEV"])
        .all(JOINS_6, &["ENODEV", "EAFNOSUPPORT"])
        .hold(answers_in(&joined["joined"]));
    // One network namespace, reused by one run after the other.
    let own = target.own()?;
    let service = own.another().env("STANDBY_MAX", "0").env("RUN_CONCURRENCY", "1").start();
    let look = Probe::python("groups").arg("look").arg(REPORTED_WITHIN_SECONDS);
    let ask = |probe: &Probe| {
        let body = probe.body(target.slug()).to_string();
        observed(&service.connect().ask(post("", body)))
    };
    // A namespace is returned after the answer, so the next run may start before that.
    for _ in 0..TRIES {
        let joined = ask(&join);
        thread::sleep(GIVEN_BACK_WITHIN);
        let seen = ask(&look);
        assert_eq!(seen["packets"], 0, "{seen}");
        if joined["namespace"] == seen["namespace"] {
            return Ok(());
        }
    }
    panic!("no network namespace was reused in {TRIES} tries");
}
