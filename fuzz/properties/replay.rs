//! Every kept input through its property, as the fuzz targets would: the seeds, and what fuzzing
//! once found.

use std::fs;
use std::path::{Path, PathBuf};

type Check = fn(&[u8]);

const TARGETS: [(&str, Check); 5] = [
    ("handshake", super::handshake::check),
    ("makefile_resolution", super::makefile_resolution::check),
    ("request_body", super::request_body::check),
    ("seccomp_profile", super::seccomp_profile::check),
    ("timeout", super::timeout::check),
];
/// What the repository keeps of a corpus: enough to start from.
const SEEDS_MAX: usize = 30;
const SEEDS_BYTES_MAX: usize = 100_000;

fn fuzz_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The files of a directory by name; none where there is no such directory.
fn inputs(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// Runs `check` over everything in `directory`; says how many inputs that were.
fn replay(directory: &Path, check: Check) -> usize {
    let inputs = inputs(directory);
    for (path, input) in &inputs {
        println!("{}", path.display());
        check(input);
    }
    inputs.len()
}

#[test]
fn every_seed_of_every_target_holds() {
    for (target, check) in TARGETS {
        let seeds = replay(&fuzz_directory().join("corpus").join(target), check);
        assert!(seeds > 0, "{target} has no seeds");
    }
}

#[test]
fn what_fuzzing_once_found_stays_mended() {
    let findings = TARGETS
        .map(|(target, check)| replay(&fuzz_directory().join("findings").join(target), check));
    assert!(findings.iter().sum::<usize>() > 0, "no finding was kept");
}

#[test]
fn the_seeds_are_few_and_small() {
    let mut bytes = 0;
    for (target, _) in TARGETS {
        let seeds = inputs(&fuzz_directory().join("corpus").join(target));
        assert!(seeds.len() <= SEEDS_MAX, "{target} has {} seeds", seeds.len());
        bytes += seeds.iter().map(|(_, seed)| seed.len()).sum::<usize>();
    }
    assert!(bytes <= SEEDS_BYTES_MAX, "{bytes} bytes of seeds");
}

#[test]
fn every_target_has_its_program_and_every_directory_its_target() {
    let known: Vec<&str> = TARGETS.map(|(target, _)| target).to_vec();
    for (directory, extension) in
        [("fuzz_targets", "rs"), ("corpus", ""), ("findings", ""), ("dictionaries", "dict")]
    {
        for entry in fs::read_dir(fuzz_directory().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert_eq!(path.extension().map_or("", |e| e.to_str().unwrap()), extension);
            assert!(known.contains(&stem.as_str()), "{} has no target", path.display());
        }
    }
    for target in known {
        assert!(fuzz_directory().join(format!("fuzz_targets/{target}.rs")).exists(), "{target}");
    }
}
