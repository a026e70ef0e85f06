//! Hard and symbolic links.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Unexercised;
use crate::exec::SharedDirectory;
use crate::observe::{assert_answers, lines, number_of, observed, pairs};
use crate::probe::Probe;
use crate::target::{Own, Target};

/// Fewer than the paths of an empty workspace.
const LINKS_MIN: usize = 8;
/// Longer than any run that only creates links.
const SOON: Duration = Duration::from_secs(10);
/// Swaps of directory and link that one run makes in less than a second.
const SWAPS_MIN: u64 = 1_000;
/// A file that every user may read and only root may write.
const OTHERS_FILE: &str = "/etc/passwd";

/// The answers to all attempts of `hard_links.c`. The mount refuses a link before the kernel checks
/// `protected_hardlinks`.
pub const HARD_LINKS: [(&str, &str); 14] = [
    ("own", "done"),
    ("own_link", "done"),
    ("link", "EXDEV"),
    ("linkat", "EXDEV"),
    ("linkat_empty", "EXDEV|ENOENT"),
    ("linkat_proc", "EXDEV"),
    ("rename", "EXDEV"),
    ("chmod", "EPERM"),
    ("fchmod", "EPERM"),
    ("fchmodat", "EPERM"),
    ("fchmodat2", "EPERM|ENOSYS"),
    ("creat", "EPERM"),
    ("tmpfile", "EPERM"),
    ("mknod", "EPERM"),
];

/// The file that a link points to: our sentinel, or a file that every host has.
fn secret(target: &Target) -> PathBuf {
    target.own().map_or_else(|_| "/etc/shadow".into(), |own| own.sentinel.path())
}

fn secret_directory(target: &Target) -> PathBuf {
    target.own().map_or_else(|_| "/etc".into(), |own| own.sentinel.directory.path().to_owned())
}

/// Replaces every file by a link and asserts a normal, quick answer.
fn replace_by_links(target: &Target, targets: &[&Path]) -> Value {
    let probe = Probe::python("replaced_by_links");
    let probe = targets.iter().fold(probe, |probe, target| probe.arg(json!(target)));
    let start = Instant::now();
    let replaced = target.observe(&probe);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let links: Vec<&str> =
        replaced["links"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(links.len() >= LINKS_MIN, "{replaced}");
    assert!(links.contains(&"/workspace/check/solution.py"), "{replaced}");
    replaced
}

pub fn links_at_every_path(target: &Target) -> Result<(), Unexercised> {
    let replaced = replace_by_links(target, &[&secret(target)]);
    assert!(!replaced.to_string().contains("root:"), "{replaced}");
    let own = target.own()?;
    let shared = SharedDirectory::new();
    let report = shared.path().join("report.json");
    let with_report = ["--report", report.to_str().unwrap()];
    for make in ["ln -s {} /out/report.json", "ln -s {}.new /out/report.json"] {
        let secret = own.sentinel.path();
        let script = format!("rm -f /out/report.json; {make}").replace("{}", path(&secret));
        assert_eq!(shared.exec(own, &[], &["sh", "-c", &script]).code, Some(0), "{make}");
        let followed = shared.exec(own, &with_report, &["true"]);
        assert_eq!(followed.code, Some(2), "the report went through a link: {followed:?}");
        own.sentinel.assert_intact();
    }
    // A report to a regular file works.
    let done = shared.exec(own, &[], &["rm", "/out/report.json"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(shared.exec(own, &with_report, &["true"]).code, Some(0));
    assert!(fs::read_to_string(&report).unwrap().contains("exited"));
    Ok(())
}

pub fn links_to_endless_files(target: &Target) -> Result<(), Unexercised> {
    let endless = ["/proc/self/mem", "/dev/zero", "/dev/urandom", "/proc/kmsg"];
    replace_by_links(target, &endless.map(Path::new));
    let own = target.own()?;
    let shared = SharedDirectory::new();
    let report = shared.path().join("report.json");
    for file in endless {
        let link = ["ln", "-sf", file, "/out/report.json"];
        assert_eq!(shared.exec(own, &[], &link).code, Some(0), "{file}");
        let followed = shared.exec(own, &["--report", path(&report)], &["true"]);
        assert_eq!(followed.code, Some(2), "{file}: {followed:?}");
    }
    Ok(())
}

pub fn links_at_written_paths(target: &Target) -> Result<(), Unexercised> {
    let secret = secret(target);
    let replaced = target.observe(&Probe::python("links_at_written_paths").arg(secret.to_str()));
    assert_eq!(replaced["links"].as_array().map(Vec::len), Some(3), "{replaced}");
    Ok(())
}

pub fn links_in_the_way_of_cleaning(target: &Target) -> Result<(), Unexercised> {
    let directory = secret_directory(target);
    let before = target.own().is_ok().then(|| state_of(&directory));
    replace_by_links(target, &[&directory, &secret(target)]);
    let own = target.own()?;
    let shared = SharedDirectory::new();
    let script = "mkdir -p /out/closed && ln -s {} /out/closed/link && ln -s {} /out/link
        ln -s /out /out/closed/circle; ln -s / /out/root; chmod 0 /out/closed";
    let script = script.replace("{}", path(&directory));
    for _ in 0..2 {
        shared.exec(own, &[], &["sh", "-c", &script]);
    }
    for (name, code) in [("link", 2), ("root", 2), ("closed", 0)] {
        let bind = format!("{}:/led", shared.path().join(name).display());
        let led = shared.exec(own, &["--bind", &bind], &["true"]);
        assert_eq!(led.code, Some(code), "what is bound at {name}: {led:?}");
    }
    assert_eq!(Some(state_of(&directory)), before);
    shared.assert_is_what_a_tenant_may_make();
    Ok(())
}

/// The metadata that a chown, a chmod, or a new or removed entry changes.
fn state_of(directory: &Path) -> (u32, u32, u32, i64, i64) {
    let metadata = fs::metadata(directory).unwrap();
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    (metadata.uid(), metadata.gid(), metadata.mode(), changed.0, changed.1)
}

pub fn directory_swapped_for_a_link(target: &Target) -> Result<(), Unexercised> {
    let directory = secret_directory(target);
    let swap = |place: &str| Probe::c("swap").arg(place).arg(path(&directory)).arg("700");
    // Each one still swaps when its sandbox is removed, with others running.
    let places = ["/workspace", "/workspace/check", "/tmp", "/workspace"];
    for live in places.map(|place| target.begin(&swap(place))) {
        assert_swapped(&pairs(&observed(&live.answer())));
    }
    let own = target.own()?;
    let shared = SharedDirectory::new();
    let args = ["/out", path(&directory), "1500"];
    thread::scope(|scope| {
        let swapping = scope.spawn(|| shared.probe(own, "swap", &args));
        let mut led = 0;
        while !swapping.is_finished() {
            led += usize::from(use_swapped(own, &shared));
        }
        assert_swapped(&swapping.join().unwrap());
        assert!(led > 0, "no call found a directory");
    });
    own.sentinel.assert_intact();
    // The caller asked for that file, and it is at its place.
    let directories = ["d", "l"].map(|name| shared.path().join(name));
    let directory = directories.iter().find(|path| !path.is_symlink()).unwrap();
    fs::remove_file(directory.join("report.json")).unwrap();
    shared.assert_is_what_a_tenant_may_make();
    Ok(())
}

/// Uses the directory that is swapped for a link; returns whether the call found a directory.
fn use_swapped(own: &Own, shared: &SharedDirectory) -> bool {
    let report = shared.path().join("d/report.json");
    let options = ["--report", path(&report), "--workdir", "/out/d"];
    let done = shared.exec(own, &options, &["ls", "-a"]);
    assert!(matches!(done.code, Some(0 | 2 | 125)), "{done:?}");
    assert!(!done.stdout.contains("sentinel"), "{done:?}");
    done.code == Some(0)
}

#[track_caller]
fn assert_swapped(pairs: &[(String, String)]) {
    let swaps = number_of(pairs, "swaps");
    assert!(swaps >= SWAPS_MIN, "only {swaps} swaps");
}

pub fn hard_links_and_set_id_bits(target: &Target) -> Result<(), Unexercised> {
    for place in ["/workspace", "/tmp"] {
        assert_answers(&pairs(&target.observe(&Probe::c("hard_links").arg(place))), &HARD_LINKS);
    }
    let own = target.own()?;
    let shared = SharedDirectory::new();
    let links = || fs::metadata(OTHERS_FILE).unwrap().nlink();
    let before = links();
    assert_answers(&shared.probe(own, "hard_links", &["/out"]), &HARD_LINKS);
    assert_eq!(links(), before);
    shared.assert_is_what_a_tenant_may_make();
    // The same for a file of root in the same directory.
    fs::write(shared.path().join("kept"), "root's").unwrap();
    let script = "ln /out/kept /out/linked; echo >/out/kept; chmod 777 /out/kept; chown 10001 /out/kept; echo tried";
    let tried = shared.exec(own, &[], &["sh", "-c", script]);
    assert_eq!(
        lines(&tried.stdout.replace("tried", "tried all")),
        [("tried".into(), "all".into())]
    );
    let kept = fs::metadata(shared.path().join("kept")).unwrap();
    assert_eq!((kept.uid(), kept.mode() & 0o777, kept.len()), (0, 0o644, 6));
    Ok(())
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
