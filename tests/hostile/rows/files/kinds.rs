//! Special files, large and growing files, and odd names.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use crate::Unexercised;
use crate::exec::{SharedDirectory, ended};
use crate::observe::{assert_answers, number_of, pairs};
use crate::probe::Probe;
use crate::target::Target;

/// Longer than any of these runs takes.
const SOON: Duration = Duration::from_secs(10);
/// The default size limit of one file (`RUN_FILE_MAX`).
const FILE_BYTES_MAX: u64 = 64 << 20;
/// The number of names that `odd_names.py` creates.
const ODD_NAMES: usize = 24;

/// The answers to all attempts of `nodes.c`, except the names it replaced.
pub const NODES: [(&str, &str); 9] = [
    ("fifo", "done"),
    ("socket", "done"),
    ("file", "done"),
    ("null", "EPERM"),
    ("disk", "EPERM"),
    ("disk_at", "EPERM"),
    ("nothing", "EPERM"),
    ("nothing_block", "EPERM"),
    ("whiteout", "EINVAL|EPERM|ENOSYS"),
];

pub fn fifos_for_files(target: &Target) -> Result<(), Unexercised> {
    for place in ["/workspace", "/workspace/check", "/tmp"] {
        let start = Instant::now();
        let attempts = pairs(&target.observe(&Probe::c("nodes").arg(place)));
        assert!(number_of(&attempts, "replaced") > 0, "{attempts:?}");
        assert!(start.elapsed() < SOON, "{place}: {:?}", start.elapsed());
    }
    let own = target.own()?;
    let shared = SharedDirectory::new();
    for name in ["one.json", "two.json"] {
        shared.put(name, b"");
    }
    let attempts = shared.probe(own, "nodes", &["/out"]);
    assert!(number_of(&attempts, "replaced") >= 2, "{attempts:?}");
    for name in ["one.json", "two.json"] {
        let report = shared.path().join(name);
        let done = shared.exec(own, &["--report", report.to_str().unwrap()], &["true"]);
        assert_eq!(done.code, Some(2), "{name}: {done:?}");
    }
    Ok(())
}

pub fn device_nodes(target: &Target) -> Result<(), Unexercised> {
    let hold = |mut attempts: Vec<(String, String)>| {
        attempts.retain(|(name, _)| name != "replaced");
        assert_answers(&attempts, &NODES);
    };
    for place in ["/workspace", "/tmp", "/dev/shm"] {
        hold(pairs(&target.observe(&Probe::c("nodes").arg(place))));
    }
    let own = target.own()?;
    let shared = SharedDirectory::new();
    hold(shared.probe(own, "nodes", &["/out"]));
    shared.assert_is_what_a_tenant_may_make();
    Ok(())
}

pub fn sparse_files(target: &Target) -> Result<(), Unexercised> {
    let expected = [
        ("small", "done"),
        ("truncate", "EFBIG"),
        ("write", "EFBIG"),
        ("allocate", "EFBIG|ENOSPC|EOPNOTSUPP"),
        ("memfd", "EFBIG"),
        ("size", "33554432"),
        ("blocks", "0"),
    ];
    let kept = [("allocate_keep", "EFBIG|ENOSPC|EOPNOTSUPP")];
    for place in ["/workspace", "/tmp"] {
        let start = Instant::now();
        let attempts = pairs(&target.observe(&Probe::c("sparse").arg(place)));
        assert_answers(&attempts, &[&expected[..], &kept].concat());
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    }
    let shared = SharedDirectory::new();
    assert_answers(&shared.probe(target.own()?, "sparse", &["/out"]), &expected);
    Ok(())
}

pub fn growing_files(target: &Target) -> Result<(), Unexercised> {
    for file in ["/workspace/check/asserts.json", "/tmp/grown"] {
        let start = Instant::now();
        let attempts = pairs(&target.observe(&Probe::c("growing").arg(file)));
        assert!(number_of(&attempts, "size") > 0, "{attempts:?}");
        assert!(start.elapsed() < SOON, "{file}: {:?}", start.elapsed());
    }
    let own = target.own()?;
    let shared = SharedDirectory::new();
    let input = shared.path().join("input");
    shared.put("input", &vec![b'x'; 1 << 20]);
    // Everything it reads from the file is appended to the file.
    let mut call = shared.call(own, &[], &["sh", "-c", "exec cat >>/out/input"]);
    call.stdin(File::open(&input).unwrap());
    let done = ended(call);
    assert!(!matches!(done.code, Some(0) | None), "{done:?}");
    let grown = fs::metadata(&input).unwrap().len();
    assert!((2 << 20..=FILE_BYTES_MAX).contains(&grown), "{grown} bytes: {done:?}");
    Ok(())
}

pub fn odd_names(target: &Target) -> Result<(), Unexercised> {
    let answer = target.run(&Probe::python("odd_names"));
    let said = answer.finished();
    assert_eq!(said.exit_code, Some(0), "{answer:?}");
    assert_eq!(said.stdout, said.stderr, "stdout and stderr name the same files");
    let names: Vec<&str> = said.stdout.split('\0').collect();
    assert_eq!(names.len(), ODD_NAMES, "{names:?}");
    let long = "x".repeat(255);
    for name in [
        "-rf",
        "...",
        "new\nline",
        "\u{1}\u{2}\u{7f}",
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "\u{fffd}",
        "\u{fffd}\u{fffd}\u{fffd}",
        "quote\"\\",
        "$(reboot)",
        "\u{202e} gnp.exe",
        "\u{feff}bom",
        &long,
    ] {
        assert!(names.contains(&name), "{name:?} is not among {names:?}");
    }
    Ok(())
}
