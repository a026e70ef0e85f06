//! A commit whose process is killed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::random::{Numbers, count_of};
use crate::support::{TrialPlace, is_privileged};

const FILES: usize = 400;
const WAIT: Duration = Duration::from_secs(60);
const PREFIX: &str = ".cofferdam-";

fn old(number: usize) -> String {
    format!("old {number} {}", "o".repeat(2000))
}

/// Files that are changed, files that go, and files that come with their directory.
fn place() -> TrialPlace {
    let here = TrialPlace::new();
    for number in 0..FILES {
        here.write(&format!("d{}/f{number}", number % 7), &old(number));
        here.write(&format!("gone/g{number}"), "g");
    }
    here
}

const SCRIPT: &str = "for f in d*/f*; do echo new >$f; done; rm -r gone
    mkdir -p new/below; i=0; while test $i -lt 200; do echo new >new/below/n$i; i=$((i+1)); done";

/// Temporary names in the directory.
fn temporary(here: &TrialPlace) -> Vec<String> {
    let names = fs::read_dir(&here.dir).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(PREFIX)).collect()
}

/// How many files are new, checking that each is old or new.
fn new_files(here: &TrialPlace) -> usize {
    let is_new = |number: usize| {
        let text = here.read(&format!("d{}/f{number}", number % 7));
        assert!(text == "new\n" || text == old(number), "{text:?}");
        text == "new\n"
    };
    for number in 0..FILES {
        let path = here.dir.join(format!("gone/g{number}"));
        assert!(!path.exists() || fs::read_to_string(path).unwrap() == "g");
    }
    for entry in fs::read_dir(here.dir.join("new/below")).into_iter().flatten() {
        assert_eq!(fs::read_to_string(entry.unwrap().path()).unwrap(), "new\n");
    }
    (0..FILES).filter(|number| is_new(*number)).count()
}

/// Kills a commit `after` it has begun to write; returns whether it was killed in the middle.
fn kill_one(here: &TrialPlace, after: Duration) {
    let mut command = here.command("--commit");
    command.args(["--", "sh", "-c", SCRIPT]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn().unwrap();
    let deadline = Instant::now() + WAIT;
    while temporary(here).is_empty() && child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "no commit begins");
        thread::sleep(Duration::from_micros(200));
    }
    thread::sleep(after);
    // It may have ended.
    let _ = killpg(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL);
    child.wait().unwrap();
}

fn is_empty_or_gone(path: &Path) -> bool {
    fs::read_dir(path).map_or(true, |mut entries| entries.next().is_none())
}

#[test]
fn each_file_is_old_or_new_and_the_next_commit_does_the_rest() {
    if !is_privileged() {
        return;
    }
    let mut numbers = Numbers::seeded();
    // How long a commit takes from its first temporary name on.
    let whole = place();
    let began = Instant::now();
    kill_one(&whole, WAIT.min(Duration::from_millis(1)));
    let mut usual = began.elapsed().min(Duration::from_secs(2));
    let (mut in_the_middle, mut finished) = (0, 0);
    for _ in 0..count_of("OVERLAY_KILLS", 12) {
        let here = place();
        let micros = u64::try_from(usual.as_micros()).unwrap().max(1);
        kill_one(&here, Duration::from_micros(numbers.below(micros)));
        let new = new_files(&here);
        let left = temporary(&here);
        let done = here.sh("--commit", "true").exits(0).changes(&[]);
        if left.is_empty() {
            finished += 1;
            // It was over: the next one is killed earlier.
            usual = usual.mul_f64(0.7).max(Duration::from_millis(1));
        } else {
            in_the_middle += 1;
            done.says("interrupted commit");
        }
        assert_eq!(temporary(&here), Vec::<String>::new());
        let all = new_files(&here);
        assert!(all == FILES || all == 0 && new == 0, "{new} and then {all} are new");
        let is_over = all == FILES;
        assert_eq!(is_empty_or_gone(&here.dir.join("gone")), is_over);
        let made = fs::read_dir(here.dir.join("new/below")).map_or(0, Iterator::count);
        assert_eq!(made, if is_over { 200 } else { 0 });
    }
    eprintln!("{in_the_middle} killed in the middle, {finished} after the end");
    assert!(in_the_middle > 0, "no commit was killed in the middle");
}
