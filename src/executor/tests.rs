//! Which sandboxes the pool prepares and discards, and when. A sandbox here is a number.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::executor::fill::TemplateContents;
use crate::executor::pool_key::{PoolKey, TemplateKey};
use crate::executor::pool_policy::{PoolAction, PoolPolicy, PoolTake, PrepareResult};
use cofferdam_core::{Limits, RunSpec, StdinSource};
use cofferdam_tree::{Fingerprint, Template};

/// Long enough after a run for its answer to be sent.
const LATER: Duration = Duration::from_millis(20);
/// How long unused sandboxes are kept.
const IDLE: Duration = Duration::from_secs(300);
const CPUS: usize = 2;
const NONE: [u32; 0] = [];

/// The policy, the time, and the number of the last sandbox.
struct Shop {
    policy: PoolPolicy<u32>,
    now: Instant,
    made: u32,
}

/// A live run.
struct Run(Arc<PoolKey>, Instant);

impl Shop {
    fn with(prepared_max: usize) -> Self {
        Self { policy: PoolPolicy::new(prepared_max, CPUS), now: Instant::now(), made: 0 }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn begin(&mut self, key: &Arc<PoolKey>) -> Run {
        assert_eq!(self.policy.begin(key, self.now), NONE, "outdated");
        // No two runs begin at the same time.
        let run = Run(Arc::clone(key), self.now);
        self.pass(Duration::from_nanos(1));
        run
    }

    fn end(&mut self, Run(key, began): Run) {
        self.policy.end(&key, began, self.now);
    }

    /// `count` concurrent runs that have ended.
    fn runs(&mut self, key: &Arc<PoolKey>, count: usize) {
        let runs: Vec<Run> = (0..count).map(|_| self.begin(key)).collect();
        for run in runs {
            self.end(run);
        }
        self.pass(LATER);
    }

    fn next(&mut self) -> PoolAction<u32> {
        self.policy.next(self.now)
    }

    #[track_caller]
    fn asked_for(&mut self) -> Arc<PoolKey> {
        match self.next() {
            PoolAction::Prepare(key) => key,
            other => panic!("{other:?} instead of a sandbox to prepare"),
        }
    }

    /// Prepares the requested sandbox.
    #[track_caller]
    fn make(&mut self) -> (Arc<PoolKey>, u32) {
        let key = self.asked_for();
        self.made += 1;
        let unwanted = self.policy.prepared(&key, PrepareResult::Prepared(self.made), self.now);
        assert_eq!(unwanted, None);
        (key, self.made)
    }

    /// Prepares all requested sandboxes, and returns the names of their keys.
    #[track_caller]
    fn make_all(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            match self.next() {
                PoolAction::Wait(_) => return names,
                PoolAction::Discard(sandboxes) => panic!("{sandboxes:?} are discarded"),
                PoolAction::Prepare(key) => {
                    self.made += 1;
                    self.policy.prepared(&key, PrepareResult::Prepared(self.made), self.now);
                    names.push(name(&key));
                    assert!(names.len() < 1000, "without an end");
                }
            }
        }
    }

    #[track_caller]
    fn assert_waits(&mut self) -> Option<Duration> {
        match self.next() {
            PoolAction::Wait(until) => until.map(|until| until.duration_since(self.now)),
            other => panic!("{other:?} instead of waiting"),
        }
    }

    #[track_caller]
    fn discard(&mut self) -> Vec<u32> {
        match self.next() {
            PoolAction::Discard(mut sandboxes) => {
                sandboxes.sort_unstable();
                sandboxes
            }
            other => panic!("{other:?} instead of letting go"),
        }
    }

    fn take(&mut self, key: &PoolKey) -> Option<u32> {
        match self.policy.take(key) {
            PoolTake::Prepared(ready) => Some(ready),
            PoolTake::InPreparation | PoolTake::Nothing => None,
        }
    }
}

fn name(key: &PoolKey) -> String {
    match key {
        PoolKey::Template(key) => key.template.display().to_string(),
        PoolKey::Mounted(key) => key.number().to_string(),
    }
}

fn with_contents(template: &str, contents: TemplateContents) -> Arc<PoolKey> {
    let spec = RunSpec {
        argv: vec![CString::new("true").unwrap()],
        env: Vec::new(),
        workdir: "/workspace".into(),
        stdin: StdinSource::Null,
        limits: Limits::default(),
        ..RunSpec::default()
    };
    let key = TemplateKey::of(PathBuf::from(template), contents, &spec).unwrap();
    Arc::new(PoolKey::Template(key))
}

/// The key of that template.
fn of(template: &str) -> Arc<PoolKey> {
    with_contents(template, TemplateContents::Copied(Fingerprint::default()))
}

/// The key of another state of the template.
fn changed(template: &str) -> Arc<PoolKey> {
    let place = tempfile::tempdir().unwrap();
    with_contents(
        template,
        TemplateContents::Copied(Template::scan(place.path()).unwrap().fingerprint),
    )
}

#[test]
fn nothing_is_prepared_before_the_first_run() {
    let mut shop = Shop::with(3);
    assert_eq!(shop.assert_waits(), None);
    assert_eq!(shop.take(&of("a")), None);
}

#[test]
fn as_many_are_prepared_as_ran_at_once_up_to_the_maximum() {
    for (prepared_max, at_once, made) in
        [(0, 1, 0), (0, 9, 0), (1, 1, 1), (1, 9, 1), (3, 1, 1), (3, 2, 2), (3, 3, 3), (3, 9, 3)]
    {
        let mut shop = Shop::with(prepared_max);
        shop.runs(&of("a"), at_once);
        assert_eq!(shop.make_all().len(), made, "{prepared_max} {at_once}");
        assert_eq!(shop.policy.ready(), made);
        // Runs one after the other are not concurrent.
        shop.runs(&of("a"), 1);
        shop.runs(&of("a"), 1);
        assert_eq!(shop.make_all().len(), 0, "{prepared_max} {at_once}");
    }
}

#[test]
fn a_taken_sandbox_is_prepared_again() {
    let mut shop = Shop::with(2);
    let a = of("a");
    shop.runs(&a, 1);
    assert_eq!(shop.make(), (Arc::clone(&a), 1));
    let run = shop.begin(&a);
    assert_eq!(shop.take(&a), Some(1));
    assert_eq!(shop.take(&a), None);
    shop.end(run);
    shop.pass(LATER);
    assert_eq!(shop.make(), (a, 2));
    shop.assert_waits();
}

#[test]
fn the_oldest_sandbox_is_taken_first_and_each_once() {
    let mut shop = Shop::with(3);
    let a = of("a");
    shop.runs(&a, 3);
    shop.make_all();
    let taken: Vec<_> = (0..4).map(|_| shop.take(&a)).collect();
    assert_eq!(taken, [Some(1), Some(2), Some(3), None]);
}

#[test]
fn a_sandbox_serves_its_own_key_only() {
    let mut shop = Shop::with(3);
    shop.runs(&of("a"), 1);
    shop.make_all();
    assert_eq!(shop.take(&of("b")), None);
    assert_eq!(shop.take(&changed("a")), None);
    assert_eq!(shop.take(&of("a")), Some(1));
}

#[test]
fn the_most_recent_key_is_prepared_first() {
    for order in [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]] {
        let mut shop = Shop::with(3);
        for template in order {
            shop.runs(&of(template), 1);
        }
        let mut made = shop.make_all();
        made.reverse();
        assert_eq!(made, order);
    }
}

#[test]
fn a_full_pool_discards_from_the_least_recent_key() {
    let mut shop = Shop::with(3);
    shop.runs(&of("old"), 2);
    shop.make_all();
    shop.runs(&of("middle"), 1);
    shop.make_all();
    assert_eq!(shop.policy.ready(), 3);
    shop.runs(&of("new"), 2);
    for gone in [1, 2] {
        assert_eq!(shop.discard(), [gone]);
        assert_eq!(name(&shop.make().0), "new");
    }
    // The key that gave its sandboxes does not take them back from later keys.
    shop.assert_waits();
    assert_eq!(shop.take(&of("middle")), Some(3));
    assert_eq!(shop.take(&of("old")), None);
}

#[test]
fn a_key_in_use_takes_no_sandbox_from_a_later_key() {
    let mut shop = Shop::with(1);
    let run = shop.begin(&of("a"));
    shop.runs(&of("b"), 1);
    assert_eq!(shop.make_all(), ["b"]);
    shop.end(run);
    shop.pass(LATER);
    shop.assert_waits();
    assert_eq!(shop.take(&of("b")), Some(1));
}

#[test]
fn idle_sandboxes_are_discarded_and_not_prepared_again() {
    let mut shop = Shop::with(3);
    shop.runs(&of("a"), 2);
    shop.make_all();
    shop.pass(IDLE / 2);
    shop.runs(&of("b"), 1);
    shop.make_all();
    shop.pass(IDLE / 2 - 3 * LATER);
    let until = shop.assert_waits().expect("a time to look again");
    assert!(until <= 2 * LATER, "{until:?}");
    shop.pass(until);
    assert_eq!(shop.discard(), [1, 2]);
    shop.assert_waits();
    assert_eq!(shop.take(&of("b")), Some(3));
}

#[test]
fn a_key_with_a_live_run_is_never_idle() {
    let mut shop = Shop::with(1);
    let a = of("a");
    let run = shop.begin(&a);
    shop.pass(2 * IDLE);
    assert_eq!(shop.make().1, 1);
    shop.assert_waits();
    shop.end(run);
    assert_eq!(shop.take(&a), Some(1));
}

#[test]
fn a_failure_delays_the_next_attempt() {
    type Failure = fn() -> PrepareResult<u32>;
    let table: [(Failure, Duration, Duration); 2] = [
        (|| PrepareResult::Failed, Duration::from_millis(4_990), Duration::from_millis(5_001)),
        (|| PrepareResult::Unsettled, Duration::from_millis(49), Duration::from_millis(51)),
    ];
    for (failure, too_early, again) in table {
        let mut shop = Shop::with(2);
        shop.runs(&of("a"), 1);
        let key = shop.asked_for();
        assert_eq!(shop.policy.prepared(&key, failure(), shop.now), None);
        shop.pass(too_early);
        let until = shop.assert_waits().expect("a time to try again");
        assert!(too_early + until <= again, "{until:?}");
        // Other keys do not wait.
        shop.runs(&of("b"), 1);
        assert_eq!(name(&shop.make().0), "b");
        shop.pass(again - too_early);
        assert_eq!(name(&shop.make().0), "a");
    }
}

#[test]
fn a_changed_template_discards_its_sandboxes_at_once() {
    let mut shop = Shop::with(4);
    shop.runs(&of("a"), 2);
    shop.runs(&of("b"), 1);
    shop.make_all();
    let (new, began) = (changed("a"), shop.now);
    let mut outdated = shop.policy.begin(&new, began);
    outdated.sort_unstable();
    assert_eq!(outdated, [2, 3], "those of a, and not that of b, which was made first");
    assert_eq!(shop.take(&of("a")), None);
    shop.end(Run(Arc::clone(&new), began));
    shop.pass(LATER);
    assert_eq!(shop.make().0, new);
    shop.assert_waits();
    assert_eq!(shop.take(&of("b")), Some(1));
}

#[test]
fn a_sandbox_that_is_outdated_when_ready_is_returned() {
    let mut shop = Shop::with(4);
    shop.runs(&of("a"), 1);
    let old = shop.asked_for();
    let (new, began) = (changed("a"), shop.now);
    assert_eq!(shop.policy.begin(&new, began), NONE);
    assert_eq!(shop.policy.prepared(&old, PrepareResult::Prepared(7), shop.now), Some(7));
    shop.end(Run(Arc::clone(&new), began));
    shop.pass(LATER);
    assert_eq!(shop.make().0, new);
    shop.assert_waits();
}

#[test]
fn a_late_run_of_the_old_state_requests_no_sandbox() {
    let mut shop = Shop::with(4);
    let run = shop.begin(&of("a"));
    let (new, began) = (changed("a"), shop.now);
    assert_eq!(shop.policy.begin(&new, began), NONE);
    shop.end(Run(Arc::clone(&new), began));
    shop.end(run);
    shop.pass(LATER);
    assert_eq!(shop.make().0, new);
    shop.assert_waits();
}

#[test]
fn a_sandbox_in_preparation_is_reported() {
    let mut shop = Shop::with(1);
    let a = of("a");
    shop.runs(&a, 1);
    assert!(matches!(shop.policy.take(&a), PoolTake::Nothing));
    let key = shop.asked_for();
    assert!(matches!(shop.policy.take(&a), PoolTake::InPreparation));
    shop.policy.prepared(&key, PrepareResult::Failed, shop.now);
    assert!(matches!(shop.policy.take(&a), PoolTake::Nothing));
}

#[test]
fn a_closed_pool_discards_everything_and_prepares_nothing() {
    let mut shop = Shop::with(3);
    let (a, b) = (of("a"), of("b"));
    shop.runs(&a, 2);
    shop.make();
    let in_preparation = shop.asked_for();
    let run = shop.begin(&b);
    shop.policy.close();
    assert_eq!(shop.discard(), [1]);
    assert_eq!(shop.assert_waits(), None);
    assert_eq!(
        shop.policy.prepared(&in_preparation, PrepareResult::Prepared(2), shop.now),
        Some(2)
    );
    shop.end(run);
    shop.runs(&a, 3);
    while let PoolAction::Discard(sandboxes) = shop.next() {
        assert_eq!(sandboxes, NONE);
    }
    assert_eq!(shop.assert_waits(), None);
    assert_eq!(shop.take(&a), None);
    assert_eq!(shop.policy.ready(), 0);
}

#[test]
fn sandboxes_are_prepared_only_when_no_run_is_slowed_down() {
    let (tiny, young, old) =
        (Duration::from_millis(4), Duration::from_millis(10), Duration::from_millis(1_001));
    // The ages of the runs that are live, on two CPUs; whether there is time.
    let table: [(&[Duration], bool); 9] = [
        (&[], true),
        (&[tiny], false),
        (&[young], true),
        (&[young, young], false),
        (&[old], true),
        (&[old, old, old, old], true),
        (&[old, old, young], true),
        (&[old, young, young], false),
        (&[old, old, tiny], false),
    ];
    for (ages, has_time) in table {
        let mut shop = Shop::with(9);
        let a = of("a");
        shop.runs(&a, 1);
        shop.pass(old);
        let now = shop.now;
        let mut sorted = ages.to_vec();
        sorted.sort_unstable();
        for (number, age) in sorted.iter().rev().enumerate() {
            shop.now = now - *age + Duration::from_nanos(u64::try_from(number).unwrap());
            shop.begin(&a);
        }
        shop.now = now;
        assert_eq!(matches!(shop.next(), PoolAction::Prepare(_)), has_time, "{ages:?}");
    }
}

#[test]
fn a_delayed_preparer_wakes_as_soon_as_it_may_prepare() {
    let a = of("a");
    let mut shop = Shop::with(9);
    let run = shop.begin(&a);
    let until = shop.assert_waits().expect("the end of its first moments");
    assert!(until <= Duration::from_millis(5), "{until:?}");
    shop.pass(until);
    shop.make();
    let more = [shop.begin(&a), shop.begin(&a)];
    shop.pass(Duration::from_millis(6));
    let until = shop.assert_waits().expect("the first one's old age");
    assert!(until <= Duration::from_secs(1), "{until:?}");
    // An answer is being sent.
    shop.pass(Duration::from_secs(2));
    for run in more {
        shop.end(run);
    }
    let until = shop.assert_waits().expect("the answer's time");
    assert!(until <= Duration::from_micros(500), "{until:?}");
    shop.pass(until);
    shop.make();
    shop.end(run);
}

#[test]
fn unused_keys_are_forgotten() {
    let mut shop = Shop::with(2);
    for number in 0..10_000_u32 {
        shop.runs(&of(&number.to_string()), 1);
        match shop.next() {
            PoolAction::Prepare(key) => {
                shop.policy.prepared(&key, PrepareResult::Prepared(number), shop.now);
            }
            PoolAction::Discard(sandboxes) => {
                assert_eq!(sandboxes.len(), 1);
                shop.make();
            }
            PoolAction::Wait(_) => panic!("nothing is made for {number}"),
        }
        assert!(shop.policy.ready() <= 2);
    }
    // About a hundred keys are left, not ten thousand.
    let kept = format!("{:?}", shop.policy).matches("Bucket {").count();
    assert!((1..=100).contains(&kept), "{kept}");
}

#[test]
fn the_memory_of_all_sandboxes_stays_within_its_bound_and_the_key_used_last_comes_first() {
    let mut shop = Shop::with(8);
    shop.policy = PoolPolicy::new(8, CPUS).bounded(100, LATER);
    let (small, large) = (of("small"), of("large"));
    shop.runs(&small, 1);
    shop.policy.weigh(&small, 40);
    assert_eq!(shop.make().0, small);
    shop.runs(&large, 1);
    assert_eq!(shop.asked_for(), large);
    // It got no further than to what was left.
    assert_eq!((shop.policy.bytes(), shop.policy.bytes_left()), (40, 60));
    shop.policy.prepared(&large, PrepareResult::TooLarge(70), shop.now);
    shop.pass(LATER);
    assert_eq!(shop.discard(), [1]);
    assert_eq!(shop.make().0, large);
    assert_eq!(shop.policy.bytes(), 70);
    shop.assert_waits();
}
