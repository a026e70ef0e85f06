//! Many jobs, and what one costs.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use super::status_file::StatusFile;
use super::testing::{at, id, place_of, request, result, run, store};
use super::{RunStore, StoreError, StoreSettings};

/// Puts ten thousand records down without waiting for the disk.
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

/// Not a guarantee: what it costs. Run with `--ignored --nocapture`.
#[test]
#[ignore = "a figure, not a guarantee"]
fn what_a_job_costs() {
    let (_place, store) = store();
    let (mut created, mut started, mut finished) = (0.0, 0.0, 0.0);
    for index in 0..100 {
        let name = format!("a{index}");
        let begun = Instant::now();
        let mut record = store.create(&id(&name), &request(), at(index)).unwrap();
        created += begun.elapsed().as_secs_f64() * 10.0;
        let begun = Instant::now();
        record.started(at(index)).unwrap();
        started += begun.elapsed().as_secs_f64() * 10.0;
        record.stdout().unwrap().write_all(b"out").unwrap();
        let begun = Instant::now();
        record.finish(&result(&name, index)).unwrap();
        finished += begun.elapsed().as_secs_f64() * 10.0;
    }
    println!("create {created:.2} ms, started {started:.2} ms, finish {finished:.2} ms");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for job in 0..50 {
                    run(store, &format!("{thread}-{job}"), job);
                }
            });
        }
    });
    println!("8 threads: {:.2} ms a job", begun.elapsed().as_secs_f64() * 2.5);
}
