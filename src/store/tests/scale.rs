//! A store with many jobs.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::store::files::status_file::StatusFile;
use crate::store::tests::fixtures::{place_of, request, result, store};
use crate::store::{RunStore, StoreError, StoreSettings};

/// Writes ten thousand records without waiting for the disk.
fn ten_thousand(directory: &Path) {
    for index in 0..10_000 {
        let name = format!("job-{index:05}");
        let place = place_of(directory, &name);
        fs::create_dir(&place).unwrap();
        let result = result(&name, index);
        let status = StatusFile::over(&result, None, 0);
        fs::write(place.join("request.json"), serde_json::to_vec(&request()).unwrap()).unwrap();
        fs::write(place.join("result.json"), serde_json::to_vec(&result).unwrap()).unwrap();
        fs::write(place.join("status.json"), serde_json::to_vec(&status).unwrap()).unwrap();
    }
}

#[test]
fn ten_thousand_jobs_are_opened_and_listed_in_a_bounded_time() {
    let (place, store) = store();
    drop(store);
    ten_thousand(place.path());
    let begun = Instant::now();
    let (store, recovered) = RunStore::open(place.path(), StoreSettings::default()).unwrap();
    let opened = begun.elapsed();
    assert_eq!((recovered.jobs, recovered.quarantined.len()), (10_000, 0));
    let (begun, mut cursor, mut seen) = (Instant::now(), None::<String>, Vec::new());
    loop {
        let (lines, next) = store.list(None, 50, cursor.as_deref()).unwrap();
        seen.extend(lines);
        cursor = next;
        if cursor.is_none() {
            break;
        }
    }
    let listed = begun.elapsed();
    assert_eq!(seen.len(), 10_000);
    assert!(seen.is_sorted_by(|a, b| a.job_id > b.job_id), "the newest first, each once");
    let begun = Instant::now();
    let looker = RunStore::open_existing(place.path()).unwrap();
    assert_eq!(looker.list(None, 50, None).unwrap().0, seen[..50]);
    let looked = begun.elapsed();
    println!(
        "opened in {opened:?}, 200 pages in {listed:?}, one page without an index in {looked:?}"
    );
    assert!(opened < Duration::from_secs(30) && looked < Duration::from_secs(15));
    assert!(listed < Duration::from_secs(2), "{listed:?}");
    assert_eq!(store.list(None, 5, Some("x")), Err(StoreError::BadCursor));
}
