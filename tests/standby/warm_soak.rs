//! Runs over warm and plain sandboxes in turn leave nothing behind, in the server or on the host.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::solution_within;
use cofferdam_test_server::host::{Footprint, in_turn, resident_bytes};
use cofferdam_test_server::prestart::{metric, warm_sandboxes};
use cofferdam_test_server::service::{Service, Setup, wait_until};

use crate::ready::{PATIENCE, shells, wait_ready};
use crate::soak::{Holdings, NETWORKS_MORE_MAX, networks, settled};

/// The default number of runs, which `WARM_RUNS` overrides.
const RUNS: usize = 300;
/// The most runs before the first count.
const FIRST_MAX: usize = 1000;
const SLUGS: [&str; 2] = ["ahead", "overlaid"];
const CONCURRENCY: usize = 2;
const STANDBY_MAX: usize = 2;
/// How long a run may wait for its warm sandbox. Without one it is a plain run.
const WARM_WAIT: Duration = Duration::from_millis(500);
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// What the allocator may keep from the busiest moment: outputs of one mebibyte and their JSON.
const RESIDENT_ONCE_MAX: u64 = 16 << 20;
/// And from each run.
const RESIDENT_PER_RUN_MAX: u64 = 128;
/// Of four runs in warm sandboxes one may find none.
const WARM_SHARE_MIN: f64 = 0.75;

const MAKEFILE: &str = ".PHONY: test prestart\ntest:\n\texec sh ./*/[sS]olution.*\nprestart:\n\techo ready; \
                        while read line; do :; done; exec sh ./*/[sS]olution.* </dev/null\n";

/// Every second run is one of a program that was started ahead.
fn run_some_kind(service: &Service, number: usize) {
    let slug = SLUGS[number % SLUGS.len()];
    if slug == SLUGS[0] {
        let deadline = Instant::now() + WARM_WAIT;
        while metric(service, "boxes_ready") < 1.0 && Instant::now() < deadline {
            thread::sleep(LOOK_INTERVAL);
        }
    }
    let (script, timeout, outcome) = match number / 2 % 16 {
        0 => ("sleep 60", "100ms", "timed_out"),
        1 => ("yes", "20s", "output_limit"),
        2 | 3 => ("sleep 60 & sleep 60 & setsid sleep 60 &", "20s", "exited"),
        4 => ("kill -SEGV $$", "20s", "signaled"),
        5 => ("head -c 100000 /dev/zero >/tmp/file", "20s", "exited"),
        _ => ("echo hi", "20s", "exited"),
    };
    let mut body = solution_within(timeout, script);
    body["lang_slug"] = slug.into();
    let answer = service.post(&body);
    assert_eq!(answer.header("x-run-outcome"), Some(outcome), "{slug}: {script}: {answer:?}");
}

/// The counts with full pools.
fn counted(service: &Service, footprint: &Footprint, last: Option<&Holdings>) -> Holdings {
    let warm = || warm_sandboxes(service.pid()).len();
    // The pools fill up with what the last runs asked for.
    in_turn(STANDBY_MAX, 2 * STANDBY_MAX, |_| nap(service, SLUGS[0]));
    wait_until("warm sandboxes", PATIENCE, || warm() == STANDBY_MAX);
    wait_ready(service, STANDBY_MAX);
    settled(service, footprint, last)
}

/// Long enough for several runs to overlap.
fn nap(service: &Service, slug: &str) {
    let mut body = solution_within("20s", "sleep 0.3");
    body["lang_slug"] = slug.into();
    service.post(&body);
}

/// How many descriptors of each kind the server has.
fn kinds(pid: i32) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    for target in links.filter_map(|link| std::fs::read_link(link.path()).ok()) {
        let kind = target.to_string_lossy().replace(|letter: char| letter.is_ascii_digit(), "");
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

#[test]
fn many_runs_in_warm_and_plain_sandboxes_leave_nothing_behind() {
    let _alone = alone();
    let runs = std::env::var("WARM_RUNS").map_or(RUNS, |runs| runs.parse().unwrap());
    let langs = shells(&SLUGS);
    langs.put("ahead/Makefile", MAKEFILE);
    let service = Setup::inside(langs.path())
        .arg("--langs")
        .arg(langs.path())
        .env("STANDBY_MAX", STANDBY_MAX.to_string())
        .env("RUN_CONCURRENCY", (2 * CONCURRENCY).to_string())
        .start();
    let footprint = Footprint::of(service.pid());
    // Creates what each id, template or thread creates only once.
    in_turn(CONCURRENCY, FIRST_MAX.min(runs), |number| run_some_kind(&service, number));
    let before = counted(&service, &footprint, None);
    let (resident_before, used_before) =
        (resident_bytes(service.pid()), metric(&service, "boxes_used_total"));
    println!("before: {before:?}");
    let (kinds_before, networks_before) = (kinds(service.pid()), networks(service.pid()));

    in_turn(CONCURRENCY, runs, |number| run_some_kind(&service, number));
    let warm = metric(&service, "boxes_used_total") - used_before;
    let after = counted(&service, &footprint, Some(&before));
    let kinds_after = kinds(service.pid());
    assert_eq!(after, before, "{kinds_before:?} became {kinds_after:?}");
    assert!(networks(service.pid()) <= networks_before + NETWORKS_MORE_MAX, "{kinds_after:?}");
    let grown = resident_bytes(service.pid()).saturating_sub(resident_before);
    println!("{runs} runs, {warm} of them warm; resident memory grew by {grown} bytes");
    assert!(warm >= WARM_SHARE_MIN * (runs / 2) as f64, "{warm} warm runs of {runs}");
    let grown_max = RESIDENT_ONCE_MAX + RESIDENT_PER_RUN_MAX * u64::try_from(runs).unwrap();
    assert!(grown < grown_max, "{grown} bytes");
}
