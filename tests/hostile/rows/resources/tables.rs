//! Descriptors and other objects in kernel tables, and the standard streams.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Unexercised;
use crate::exec::{SharedDirectory, ended};
use crate::observe::{observed, pairs};
use crate::probe::Probe;
use crate::target::Target;

/// Longer than any of these runs takes.
const SOON: Duration = Duration::from_secs(10);

/// The kinds of objects, the most a run may get, and the kernel's refusal of the next.
const TABLES: &[(&str, u64, &str)] = &[
    ("open", 256, "EMFILE"),
    ("far", 0, "EINVAL|EMFILE"),
    ("raise", 0, "EPERM"),
    ("event", 256, "EMFILE"),
    ("timerfd", 256, "EMFILE"),
    ("epoll", 256, "EMFILE"),
    ("nested", 6, "ELOOP|EINVAL"),
    ("inotify", 8, "EMFILE"),
    ("watch", 8192, "ENOSPC|ENOENT"),
    ("timer", 150_000, "EAGAIN"),
    ("signal", 150_000, "EAGAIN"),
    ("queue", 256, "EMFILE|ENOSPC|ENOMEM"),
    ("semaphore", 32_768, "ENOSPC"),
    ("shm", 32_768, "ENOSPC"),
    ("message", 32_768, "ENOSPC"),
    ("in_flight", 256, "ETOOMANYREFS|EMFILE"),
];

pub fn everything_with_a_number(target: &Target) -> Result<(), Unexercised> {
    // Two such runs at once: neither reduces the other's tables.
    let lives = [(); 2].map(|()| target.begin(&Probe::c("descriptors")));
    let neighbour =
        "import os\ndef probe(): return [os.pipe() for _ in range(100)] and os.fork() >= 0";
    assert_eq!(target.observe(&Probe::inline(neighbour)), json!(true));
    let [first, second] = lives.map(|live| pairs(&observed(&live.answer())));
    // Descriptors in flight are counted until the kernel's garbage collector runs.
    let settled = |told: &[(String, String)]| {
        told.iter().filter(|(name, _)| name != "in_flight").cloned().collect::<Vec<_>>()
    };
    assert_eq!(settled(&first), settled(&second), "one run has less because of another");
    assert_eq!(first.len(), TABLES.len(), "{first:?}");
    for ((name, told), (expected, most, refusals)) in first.iter().zip(TABLES) {
        assert_eq!(name, expected);
        let (taken, refusal) = told.split_once(' ').unwrap();
        let taken: u64 = taken.parse().unwrap();
        assert!(taken <= *most, "{name}: {taken}, then {refusal}");
        assert!(refusals.split('|').any(|known| known == refusal), "{name}: {told}");
    }
    Ok(())
}

pub fn standard_streams(target: &Target) -> Result<(), Unexercised> {
    let streams = target.observe(&Probe::python("streams"));
    assert_eq!(streams["is"], "/dev/null", "{streams}");
    assert_eq!(streams["read"], "b''", "{streams}");
    // It is open for reading only; reopened for writing it discards everything.
    assert_eq!(streams["write"], "Bad file descriptor", "{streams}");
    assert_eq!((&streams["write_anew"], &streams["terminal"]), (&json!("1048576"), &json!(false)));
    assert!(!streams["controlling"].as_str().unwrap().starts_with(char::is_numeric), "{streams}");
    let start = Instant::now();
    for close in
        ["os.closerange(0, 256)", "os.closerange(0, 3); os.fork() or os.setsid() or time.sleep(30)"]
    {
        let probe = format!("import os, time\ndef probe():\n    {close}\n    os._exit(7)");
        let finished = target.run(&Probe::inline(&probe)).finished();
        assert_eq!((finished.exit_code, finished.stdout.as_str()), (Some(7), ""), "{close}");
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    unread_input(target)
}

/// Tries `exec`, which passes its own stdin on.
fn unread_input(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let shared = SharedDirectory::new();
    for (script, code) in
        [("exit 3", 3), ("exec <&-; sleep 0.1; exit 4", 4), ("head -c 9 >/dev/null; exit 5", 5)]
    {
        let mut call = shared.call(own, &[], &["sh", "-c", script]);
        // Endless input.
        call.stdin(Stdio::from(File::open("/dev/zero").unwrap()));
        let start = Instant::now();
        assert_eq!(ended(call).code, Some(code), "{script}");
        assert!(start.elapsed() < SOON, "{script}: {:?}", start.elapsed());
    }
    Ok(())
}
