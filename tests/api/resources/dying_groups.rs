//! Removed memory groups that the kernel keeps as long as it caches a file page that a tenant was
//! the first to read.

use std::fs;
use std::path::PathBuf;

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::service::Setup;

/// Each run leaves one page.
const RUNS: usize = 400;
/// Well above what the service lets the kernel keep (`DYING_GROUPS_MAX` and those between two
/// counts), including groups of other processes, and well below the number of runs.
const KEPT_MAX: u64 = 250;

/// Files that every tenant can read. No two share a page.
fn files() -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from("/usr/share"), PathBuf::from("/usr/lib")];
    let mut files = Vec::new();
    while let Some(directory) = directories.pop().filter(|_| files.len() < RUNS) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() && entry.metadata().is_ok_and(|found| found.len() > 0) {
                files.push(entry.path());
            }
        }
    }
    files.truncate(RUNS);
    assert_eq!(files.len(), RUNS);
    files
}

/// The number of memory groups, including removed ones that the kernel keeps.
fn memory_groups() -> u64 {
    let table = fs::read_to_string("/proc/cgroups").unwrap();
    let row = table.lines().find(|line| line.starts_with("memory\t")).unwrap();
    let columns: Vec<u64> = row.split('\t').skip(1).map(|figure| figure.parse().unwrap()).collect();
    columns[1]
}

#[test]
fn runs_that_cache_file_pages_do_not_each_leave_a_memory_group() {
    let _alone = alone();
    let service = Setup::shell().start();
    assert_eq!(service.run("true").status, 200);
    let before = memory_groups();
    for file in files() {
        let file = file.to_str().unwrap().replace('\'', "");
        let script = format!(
            "dd if='{file}' iflag=nocache count=0 2>/dev/null; head -c 1 '{file}' >/dev/null; true"
        );
        assert_eq!(service.run(&script).status, 200);
    }
    let kept = memory_groups().saturating_sub(before);
    eprintln!("{RUNS} runs left {kept} groups");
    assert!(kept <= KEPT_MAX, "{kept} of {RUNS}");
}
