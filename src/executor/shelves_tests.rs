//! What is made ahead, when, and what goes, by table. A box here is a number.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::blueprint::Blueprint;
use super::filling::Contents;
use super::shelves::{Found, Made, Next, Shelves};
use cofferdam_core::{Limits, ProgramFile, RunSpec, StdinSource, WorkspaceFill};
use cofferdam_tree::{Fingerprint, Template};

/// After the last run, so long that its answer is out.
const LATER: Duration = Duration::from_millis(20);
/// The longest that boxes stand which nobody asks for.
const IDLE: Duration = Duration::from_secs(300);
const CPUS: usize = 2;
const NONE: [u32; 0] = [];

/// Shelves, the time, and the number of the next box.
struct Shop {
    shelves: Shelves<u32>,
    now: Instant,
    made: u32,
}

/// A live run.
struct Run(Arc<Blueprint>, Instant);

impl Shop {
    fn with(boxes_max: usize) -> Self {
        Self { shelves: Shelves::new(boxes_max, CPUS), now: Instant::now(), made: 0 }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    fn begin(&mut self, blueprint: &Arc<Blueprint>) -> Run {
        assert_eq!(self.shelves.begin(blueprint, self.now), NONE, "outdated");
        // No two runs begin at the same time.
        let run = Run(Arc::clone(blueprint), self.now);
        self.pass(Duration::from_nanos(1));
        run
    }

    fn end(&mut self, Run(blueprint, began): Run) {
        self.shelves.end(&blueprint, began, self.now);
    }

    /// So many runs at once that are over by now.
    fn runs(&mut self, blueprint: &Arc<Blueprint>, count: usize) {
        let runs: Vec<Run> = (0..count).map(|_| self.begin(blueprint)).collect();
        for run in runs {
            self.end(run);
        }
        self.pass(LATER);
    }

    fn next(&mut self) -> Next<u32> {
        self.shelves.next(self.now)
    }

    #[track_caller]
    fn asked_for(&mut self) -> Arc<Blueprint> {
        match self.next() {
            Next::Make(blueprint) => blueprint,
            other => panic!("{other:?} instead of a box to make"),
        }
    }

    /// Makes the box that is asked for.
    #[track_caller]
    fn make(&mut self) -> (Arc<Blueprint>, u32) {
        let blueprint = self.asked_for();
        self.made += 1;
        let unwanted = self.shelves.made(&blueprint, Made::Stands(self.made), self.now);
        assert_eq!(unwanted, None);
        (blueprint, self.made)
    }

    /// Makes all that are asked for, and names their blueprints.
    #[track_caller]
    fn make_all(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            match self.next() {
                Next::Wait(_) => return names,
                Next::LetGo(boxes) => panic!("{boxes:?} are let go"),
                Next::Make(blueprint) => {
                    self.made += 1;
                    self.shelves.made(&blueprint, Made::Stands(self.made), self.now);
                    names.push(name(&blueprint));
                    assert!(names.len() < 1000, "without an end");
                }
            }
        }
    }

    #[track_caller]
    fn assert_waits(&mut self) -> Option<Duration> {
        match self.next() {
            Next::Wait(until) => until.map(|until| until.duration_since(self.now)),
            other => panic!("{other:?} instead of waiting"),
        }
    }

    #[track_caller]
    fn let_go(&mut self) -> Vec<u32> {
        match self.next() {
            Next::LetGo(mut boxes) => {
                boxes.sort_unstable();
                boxes
            }
            other => panic!("{other:?} instead of letting go"),
        }
    }

    fn take(&mut self, blueprint: &Blueprint) -> Option<u32> {
        match self.shelves.take(blueprint) {
            Found::Ready(ready) => Some(ready),
            Found::BeingMade | Found::Nothing => None,
        }
    }
}

fn name(blueprint: &Blueprint) -> String {
    blueprint.template.display().to_string()
}

fn with_contents(template: &str, contents: Contents) -> Arc<Blueprint> {
    let spec = RunSpec {
        argv: vec![CString::new("true").unwrap()],
        program: ProgramFile::Named,
        without_shell: None,
        env: Vec::new(),
        workdir: "/workspace".into(),
        stdin: StdinSource::Null,
        limits: Limits::default(),
        workspace: WorkspaceFill::Own,
        binds: Vec::new(),
        tmpfs: Vec::new(),
    };
    Arc::new(Blueprint::of(PathBuf::from(template), contents, &spec).unwrap())
}

/// One of the template of that name.
fn of(template: &str) -> Arc<Blueprint> {
    with_contents(template, Contents::Copied(Fingerprint::default()))
}

/// The same of another state of the template.
fn changed(template: &str) -> Arc<Blueprint> {
    let place = tempfile::tempdir().unwrap();
    with_contents(template, Contents::Copied(Template::scan(place.path()).unwrap().fingerprint))
}

#[test]
fn nothing_is_made_before_anybody_has_asked() {
    let mut shop = Shop::with(3);
    assert_eq!(shop.assert_waits(), None);
    assert_eq!(shop.take(&of("a")), None);
}

#[test]
fn as_many_are_made_as_ran_at_once_and_never_more_than_there_may_be() {
    for (boxes_max, at_once, made) in
        [(0, 1, 0), (0, 9, 0), (1, 1, 1), (1, 9, 1), (3, 1, 1), (3, 2, 2), (3, 3, 3), (3, 9, 3)]
    {
        let mut shop = Shop::with(boxes_max);
        shop.runs(&of("a"), at_once);
        assert_eq!(shop.make_all().len(), made, "{boxes_max} {at_once}");
        assert_eq!(shop.shelves.ready(), made);
        // One after the other is not at once.
        shop.runs(&of("a"), 1);
        shop.runs(&of("a"), 1);
        assert_eq!(shop.make_all().len(), 0, "{boxes_max} {at_once}");
    }
}

#[test]
fn one_that_was_taken_is_made_again() {
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
fn the_one_made_first_is_taken_first_and_each_once() {
    let mut shop = Shop::with(3);
    let a = of("a");
    shop.runs(&a, 3);
    shop.make_all();
    let taken: Vec<_> = (0..4).map(|_| shop.take(&a)).collect();
    assert_eq!(taken, [Some(1), Some(2), Some(3), None]);
}

#[test]
fn a_box_is_for_its_own_blueprint_alone() {
    let mut shop = Shop::with(3);
    shop.runs(&of("a"), 1);
    shop.make_all();
    assert_eq!(shop.take(&of("b")), None);
    assert_eq!(shop.take(&changed("a")), None);
    assert_eq!(shop.take(&of("a")), Some(1));
}

#[test]
fn the_blueprint_used_last_is_made_first() {
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
fn where_there_is_no_room_the_blueprint_used_longest_ago_gives_a_box() {
    let mut shop = Shop::with(3);
    shop.runs(&of("old"), 2);
    shop.make_all();
    shop.runs(&of("middle"), 1);
    shop.make_all();
    assert_eq!(shop.shelves.ready(), 3);
    shop.runs(&of("new"), 2);
    for gone in [1, 2] {
        assert_eq!(shop.let_go(), [gone]);
        assert_eq!(name(&shop.make().0), "new");
    }
    // What gave its boxes does not ask for them back from those that were used later.
    shop.assert_waits();
    assert_eq!(shop.take(&of("middle")), Some(3));
    assert_eq!(shop.take(&of("old")), None);
}

#[test]
fn a_blueprint_in_use_takes_no_box_from_one_used_later() {
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
fn what_nobody_has_asked_for_in_long_goes_and_is_not_made_again() {
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
    assert_eq!(shop.let_go(), [1, 2]);
    shop.assert_waits();
    assert_eq!(shop.take(&of("b")), Some(3));
}

#[test]
fn what_is_being_run_is_not_idle_however_long() {
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
fn what_cannot_be_made_is_left_alone_for_as_long_as_its_reason_lasts() {
    type Failure = fn() -> Made<u32>;
    let table: [(Failure, Duration, Duration); 2] = [
        (|| Made::Failed, Duration::from_millis(4_990), Duration::from_millis(5_001)),
        (|| Made::Unsettled, Duration::from_millis(49), Duration::from_millis(51)),
    ];
    for (failure, too_early, again) in table {
        let mut shop = Shop::with(2);
        shop.runs(&of("a"), 1);
        let blueprint = shop.asked_for();
        assert_eq!(shop.shelves.made(&blueprint, failure(), shop.now), None);
        shop.pass(too_early);
        let until = shop.assert_waits().expect("a time to try again");
        assert!(too_early + until <= again, "{until:?}");
        // Others need not wait for it.
        shop.runs(&of("b"), 1);
        assert_eq!(name(&shop.make().0), "b");
        shop.pass(again - too_early);
        assert_eq!(name(&shop.make().0), "a");
    }
}

#[test]
fn a_template_that_has_changed_makes_its_boxes_useless_at_once() {
    let mut shop = Shop::with(4);
    shop.runs(&of("a"), 2);
    shop.runs(&of("b"), 1);
    shop.make_all();
    let (new, began) = (changed("a"), shop.now);
    let mut outdated = shop.shelves.begin(&new, began);
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
fn a_box_that_is_outdated_when_it_is_made_is_given_back() {
    let mut shop = Shop::with(4);
    shop.runs(&of("a"), 1);
    let old = shop.asked_for();
    let (new, began) = (changed("a"), shop.now);
    assert_eq!(shop.shelves.begin(&new, began), NONE);
    assert_eq!(shop.shelves.made(&old, Made::Stands(7), shop.now), Some(7));
    shop.end(Run(Arc::clone(&new), began));
    shop.pass(LATER);
    assert_eq!(shop.make().0, new);
    shop.assert_waits();
}

#[test]
fn a_run_of_the_old_state_that_ends_late_asks_for_no_box_of_it() {
    let mut shop = Shop::with(4);
    let run = shop.begin(&of("a"));
    let (new, began) = (changed("a"), shop.now);
    assert_eq!(shop.shelves.begin(&new, began), NONE);
    shop.end(Run(Arc::clone(&new), began));
    shop.end(run);
    shop.pass(LATER);
    assert_eq!(shop.make().0, new);
    shop.assert_waits();
}

#[test]
fn one_that_is_being_made_is_said_to_be() {
    let mut shop = Shop::with(1);
    let a = of("a");
    shop.runs(&a, 1);
    assert!(matches!(shop.shelves.take(&a), Found::Nothing));
    let blueprint = shop.asked_for();
    assert!(matches!(shop.shelves.take(&a), Found::BeingMade));
    shop.shelves.made(&blueprint, Made::Failed, shop.now);
    assert!(matches!(shop.shelves.take(&a), Found::Nothing));
}

#[test]
fn once_closed_everything_goes_and_nothing_is_made() {
    let mut shop = Shop::with(3);
    let (a, b) = (of("a"), of("b"));
    shop.runs(&a, 2);
    shop.make();
    let being_made = shop.asked_for();
    let run = shop.begin(&b);
    shop.shelves.close();
    assert_eq!(shop.let_go(), [1]);
    assert_eq!(shop.assert_waits(), None);
    assert_eq!(shop.shelves.made(&being_made, Made::Stands(2), shop.now), Some(2));
    shop.end(run);
    shop.runs(&a, 3);
    while let Next::LetGo(boxes) = shop.next() {
        assert_eq!(boxes, NONE);
    }
    assert_eq!(shop.assert_waits(), None);
    assert_eq!(shop.take(&a), None);
    assert_eq!(shop.shelves.ready(), 0);
}

#[test]
fn boxes_are_made_only_where_that_takes_nothing_from_a_run() {
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
        assert_eq!(matches!(shop.next(), Next::Make(_)), has_time, "{ages:?}");
    }
}

#[test]
fn a_maker_that_has_no_time_looks_again_as_soon_as_it_may_have() {
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
    // An answer is on the way.
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
fn blueprints_that_come_and_go_do_not_add_up() {
    let mut shop = Shop::with(2);
    for number in 0..10_000_u32 {
        shop.runs(&of(&number.to_string()), 1);
        match shop.next() {
            Next::Make(blueprint) => {
                shop.shelves.made(&blueprint, Made::Stands(number), shop.now);
            }
            Next::LetGo(boxes) => {
                assert_eq!(boxes.len(), 1);
                shop.make();
            }
            Next::Wait(_) => panic!("nothing is made for {number}"),
        }
        assert!(shop.shelves.ready() <= 2);
    }
    // What is left to look through is a hundred lines, not ten thousand.
    let kept = format!("{:?}", shop.shelves).matches("Shelf {").count();
    assert!((1..=100).contains(&kept), "{kept}");
}
