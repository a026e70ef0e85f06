//! Memory of every kind, and the disk, which is also memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use cofferdam_test_server::client::Answer;
use cofferdam_test_server::host::Footprint;
use cofferdam_test_server::service::wait_until;

use crate::Unexercised;
use crate::observe::{answer_of, assert_answers, number_of, observed, outcome_is, pairs};
use crate::probe::Probe;
use crate::target::{Own, Target};

/// The default memory limit of a run (`RUN_MEMORY_MAX`).
const MEMORY_MIB: u64 = 768;
/// The default disk limit of a run (`RUN_DISK_MAX`).
const DISK_MIB: u64 = 512;
/// The memory of the probe and its interpreter.
const OWN_MIB: u64 = 64;
/// The kernel frees the memory of a removed group with a delay.
const FREED_WITHIN: Duration = Duration::from_secs(10);

/// Asserts that the sandbox's peak is within the limit, if the service reports it.
#[track_caller]
fn assert_peak(answer: &Answer, at_least_mib: u64) {
    let Some(peak) = answer.header("x-run-memory-peak-bytes") else { return };
    let peak_mib = peak.parse::<u64>().unwrap() >> 20;
    assert!((at_least_mib..=MEMORY_MIB).contains(&peak_mib), "peak {peak_mib} MiB: {answer:?}");
}

/// Asserts that the memory limit ended a run.
#[track_caller]
fn assert_out_of_memory(answer: &Answer) {
    let finished = answer.finished();
    assert!(!matches!(finished.exit_code, Some(0)), "not stopped: {answer:?}");
    outcome_is(answer, "memory_limit");
}

fn ways(names: &[&str]) -> Probe {
    names.iter().fold(Probe::c("memory"), |probe, name| probe.arg(*name))
}

pub fn beyond_the_limit(target: &Target) -> Result<(), Unexercised> {
    let sibling =
        Probe::inline("import time\ndef probe(): time.sleep(1); return bytes(1 << 20).hex()[:4]");
    let sibling = target.begin(&sibling);
    let answer = target.run(&ways(&["anonymous", "shared", "populated"]));
    let killed = [("anonymous", "killed"), ("shared", "killed"), ("populated", "killed|refused")];
    assert_answers(&pairs(&observed(&answer)), &killed);
    assert_peak(&answer, MEMORY_MIB * 9 / 10);
    assert_eq!(observed(&sibling.answer()), "0000");
    // The program itself is killed and cannot report it.
    let answer = target.run(&Probe::inline("def probe(): return len(b'x' * (1600 << 20))"));
    assert_out_of_memory(&answer);
    Ok(())
}

pub fn huge_bss(target: &Target) -> Result<(), Unexercised> {
    assert_answers(&pairs(&target.observe(&ways(&["bss"]))), &[("bss", "killed")]);
    let ended = target.observe(&Probe::python_with_native("huge_bss", "memory"));
    for size in ["terabyte", "everything", "overflow"] {
        let end = &ended[size];
        let refused = end.is_string() || end.as_i64().is_some_and(|code| code < 0);
        // A terabyte that is never touched uses no memory.
        assert!(refused || (size == "terabyte" && end == 0), "{size}: {ended}");
    }
    Ok(())
}

/// Kinds whose memory is charged to the run, as its peak shows.
const COUNTED: [&str; 4] = ["file", "sysv", "pipe", "message"];
/// Kinds whose memory may be charged elsewhere.
const SOCKETS: [&str; 2] = ["udp", "tcp"];
/// Kinds that only the memory limit bounds.
const UNLIMITED: [&str; 3] = ["memfd", "passed", "unix"];

pub fn held_by_the_kernel(target: &Target) -> Result<(), Unexercised> {
    let charged = target.own().ok().map(charged_mib_or_none);
    // All at once, each in a run of its own.
    thread::scope(|scope| {
        let kinds = [&COUNTED[..], &SOCKETS, &UNLIMITED];
        let threads = kinds.map(|kinds| {
            scope.spawn(move || kinds.iter().for_each(|kind| hold_in_the_kernel(target, kind)))
        });
        let panics = threads.map(|thread| thread.join().err());
        if let Some(panic) = panics.into_iter().flatten().next() {
            std::panic::resume_unwind(panic);
        }
    });
    let (Some(before), Ok(own)) = (charged, target.own()) else { return Ok(()) };
    let before = before.expect("no memory group");
    wait_until("the release of the dead runs' memory", FREED_WITHIN, || {
        charged_mib(own) <= before + 16
    });
    Ok(())
}

/// Fills every buffer of a kind until the memory limit or a limit of that kind
/// stops it.
#[track_caller]
fn hold_in_the_kernel(target: &Target, kind: &str) {
    let answer = target.run(&Probe::c("held").arg(kind));
    if answer.finished().exit_code != Some(0) {
        return assert_out_of_memory(&answer);
    }
    let told = observed(&answer);
    if told["code"] == -9 {
        // The kernel killed the process that would have reported.
        return assert_peak(&answer, MEMORY_MIB * 9 / 10);
    }
    let held = number_of(&pairs(&told), kind);
    let most = if SOCKETS.contains(&kind) { MEMORY_MIB / 3 } else { MEMORY_MIB };
    assert!(held > 0 && held <= most, "{kind}: {held} MiB held by the kernel");
    if COUNTED.contains(&kind) {
        assert_peak(&answer, held * 9 / 10);
    }
}

/// The memory groups of the service, starting with the one of all its runs.
#[track_caller]
fn memory_groups(own: &Own) -> Vec<PathBuf> {
    let groups = memory_groups_or_none(own);
    assert!(!groups.is_empty(), "no memory group");
    groups
}

fn memory_groups_or_none(own: &Own) -> Vec<PathBuf> {
    let is_for_memory = |group: &PathBuf| {
        group.join("memory.limit_in_bytes").exists() || group.join("memory.max").exists()
    };
    let groups = Footprint::of(own.service.pid()).cgroups();
    let mut groups: Vec<PathBuf> = groups.into_iter().filter(is_for_memory).collect();
    groups.sort();
    groups
}

fn figure(group: &Path, files: [&str; 2]) -> Option<u64> {
    let texts = files.iter().map(|file| fs::read_to_string(group.join(file)).ok());
    texts.flatten().next()?.trim().parse().ok()
}

/// The host memory charged to all runs together, including dead ones.
#[track_caller]
fn charged_mib(own: &Own) -> u64 {
    charged_mib_or_none(own).expect("no memory group")
}

fn charged_mib_or_none(own: &Own) -> Option<u64> {
    let all = memory_groups_or_none(own).into_iter().next()?;
    Some(figure(&all, ["memory.usage_in_bytes", "memory.current"])? >> 20)
}

pub fn swap(target: &Target) -> Result<(), Unexercised> {
    let paged_out = pairs(&target.observe(&ways(&["paged_out"])));
    assert_answers(&paged_out, &[("paged_out", "killed")]);
    let own = target.own()?;
    let live = target.begin(&Probe::inline("import time\ndef probe(): time.sleep(1)"));
    let groups = memory_groups(own);
    let sandboxes: Vec<&PathBuf> = groups.iter().filter(|group| **group != groups[0]).collect();
    assert!(!sandboxes.is_empty(), "a live run has no memory group");
    for group in sandboxes {
        let memory = figure(group, ["memory.limit_in_bytes", "memory.max"]);
        assert_eq!(memory, Some(MEMORY_MIB << 20), "{}", group.display());
        let with_swap = figure(group, ["memory.memsw.limit_in_bytes", "absent"]);
        let swap = figure(group, ["memory.swap.max", "absent"]);
        let host_has_none =
            fs::read_to_string("/proc/swaps").unwrap_or_default().lines().count() <= 1;
        assert!(
            with_swap == memory
                || swap == Some(0)
                || (host_has_none && with_swap.or(swap).is_none()),
            "{}: {with_swap:?} with swap, {swap:?} of swap",
            group.display()
        );
    }
    live.answer().finished();
    Ok(())
}

pub fn copies_and_the_dead(target: &Target) -> Result<(), Unexercised> {
    let attempts = pairs(&target.observe(&ways(&["copied", "one_after_another"])));
    assert_answers(&attempts, &[("copied", "killed"), ("one_after_another", "500")]);
    let Ok(own) = target.own() else { return Ok(()) };
    let before = charged_mib(own);
    // An unnamed file in flight in a socket that is itself in flight: only the kernel's garbage
    // collector frees it.
    target.run(&Probe::c("held").arg("passed"));
    wait_until("the release of files in flight", FREED_WITHIN, || charged_mib(own) <= before + 16);
    Ok(())
}

pub fn locked_and_huge_pages(target: &Target) -> Result<(), Unexercised> {
    let attempts = pairs(&target.observe(&ways(&["locked"])));
    assert_answers(&attempts, &[("locked", "killed|refused")]);
    let expected = [
        ("map", "done"),
        ("map_huge", "EPERM"),
        ("map_huge_gib", "EPERM"),
        ("memfd", "done"),
        ("memfd_huge", "EINVAL|EPERM"),
        ("shm", "done"),
        ("shm_huge", "EPERM"),
        ("lock_limit", "EPERM"),
    ];
    assert_answers(&pairs(&target.observe(&Probe::c("huge_pages"))), &expected);
    Ok(())
}

pub fn full_disk(target: &Target) -> Result<(), Unexercised> {
    let places = ["/workspace", "/tmp", "/dev/shm", "/run", "/var/tmp"];
    let probe = places.iter().fold(Probe::c("fill_disk"), |probe, place| probe.arg(*place));
    let attempts = pairs(&target.observe(&probe));
    assert_eq!(answer_of(&attempts, "end"), "ENOSPC");
    let filled = number_of(&attempts, "filled");
    assert!((OWN_MIB..=DISK_MIB).contains(&filled), "{filled} MiB");
    for place in places {
        assert_eq!(answer_of(&attempts, place), "memory", "{place} is on a disk of the host");
    }
    Ok(())
}
