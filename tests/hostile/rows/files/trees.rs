//! Directory trees that are hard to remove.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Unexercised;
use crate::exec::SharedDirectory;
use crate::observe::{answer_of, assert_answers, number_of, pairs};
use crate::probe::Probe;
use crate::punctual::assert_is_answered_in_time;
use crate::target::Target;

/// Longer than any of these runs takes.
const SOON: Duration = Duration::from_secs(15);
/// How long a probe may spend building a tree.
const BUILDING_SECONDS: &str = "4";
/// The limit on files and directories of a run, plus those of the sandbox itself.
const INODES_MAX: u64 = 65_536 + 256;
/// More than `INODES_MAX`.
const BOMB: &str = "200000";

pub fn deep_trees(target: &Target) -> Result<(), Unexercised> {
    for depth in ["3000", "150000"] {
        let start = Instant::now();
        let probe = Probe::c("deep_tree").arg("/workspace").arg(depth).arg(BUILDING_SECONDS);
        is_deep(&pairs(&target.observe(&probe)));
        assert!(start.elapsed() < SOON, "{depth}: {:?}", start.elapsed());
    }
    let own = target.own()?;
    let shared = SharedDirectory::below(Path::new("/dev/shm"));
    is_deep(&shared.probe(own, "deep_tree", &["/out", "150000", BUILDING_SECONDS]));
    let after = shared.exec(own, &[], &["ls", "/out"]);
    assert_eq!((after.code, after.stdout.as_str()), (Some(0), "d\n"), "{after:?}");
    shared.empty();
    Ok(())
}

/// Asserts a depth at which one stack frame or descriptor per level would fail.
#[track_caller]
fn is_deep(attempts: &[(String, String)]) {
    assert!(["done", "ENOSPC", "ETIME"].contains(&answer_of(attempts, "end")), "{attempts:?}");
    assert!(number_of(attempts, "depth") >= 3_000, "{attempts:?}");
}

pub fn inode_bomb(target: &Target) -> Result<(), Unexercised> {
    let attempts = pairs(&target.observe(&Probe::c("inodes").arg("/tmp").arg(BOMB)));
    assert_eq!(answer_of(&attempts, "end"), "ENOSPC");
    let files = number_of(&attempts, "files");
    assert!(files <= INODES_MAX, "{files} files");
    let bomb = Probe::python_with_native("run_and_stay", "inodes");
    let bomb = bomb.arg("/tmp/probe").arg("/tmp").arg(BOMB);
    assert_is_answered_in_time(target, &bomb, Duration::from_millis(1_500));
    Ok(())
}

pub fn stubborn_files(target: &Target) -> Result<(), Unexercised> {
    let refused = "EPERM|ENOTTY|EOPNOTSUPP|EINVAL|EACCES";
    let expected = [
        ("mkdir", "done"),
        ("immutable", refused),
        ("append", refused),
        ("project", refused),
        ("attribute", "EOPNOTSUPP"),
        ("acl", "EOPNOTSUPP"),
        ("capability", "EOPNOTSUPP"),
        ("closed", "done"),
    ];
    for place in ["/workspace", "/tmp"] {
        assert_answers(&pairs(&target.observe(&Probe::c("stubborn").arg(place))), &expected);
    }
    let shared = SharedDirectory::new();
    assert_answers(&shared.probe(target.own()?, "stubborn", &["/out"]), &expected);
    shared.assert_is_what_a_tenant_may_make();
    shared.empty();
    Ok(())
}

pub fn busy_mounts(target: &Target) -> Result<(), Unexercised> {
    let places = ["/workspace", "/tmp", "/dev/shm"];
    let probe = places.iter().fold(Probe::c("busy"), |probe, place| probe.arg(*place));
    let attempts = pairs(&target.observe(&probe));
    assert_eq!(number_of(&attempts, "left"), 6);
    let shared = SharedDirectory::new();
    let attempts = shared.probe(target.own()?, "busy", &["/out"]);
    assert_eq!(number_of(&attempts, "left"), 2);
    // No process executes it any more.
    std::fs::OpenOptions::new().write(true).open(shared.path().join("running")).unwrap();
    Ok(())
}

pub fn no_working_directory(target: &Target) -> Result<(), Unexercised> {
    let tried = target.observe(&Probe::python("no_workspace").arg("/workspace"));
    for way in ["rmdir", "rename", "link_over", "rename_root"] {
        assert!(tried[way].is_string() && tried[way] != "done", "{way}: {tried}");
    }
    assert_eq!((&tried["left"], &tried["closed"]), (&json!([]), &json!("done")), "{tried}");
    let own = target.own()?;
    let shared = SharedDirectory::new();
    let script =
        "cd /; rmdir /out; mv /out /workspace/moved; mv /workspace /out/; chmod 0 /out; echo tried";
    let tried = shared.exec(own, &["--workdir", "/out"], &["sh", "-c", script]);
    assert_eq!((tried.code, tried.stdout.as_str()), (Some(0), "tried\n"), "{tried:?}");
    let after = shared.exec(own, &["--workdir", "/out"], &["true"]);
    assert!(matches!(after.code, Some(0 | 125)), "{after:?}");
    assert!(after.stderr.lines().count() <= 1, "{after:?}");
    Ok(())
}
