//! Runs vectors in parallel.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;

use cofferdam_test_server::service::Service;
use cofferdam_test_server::shipped::{CONCURRENCY, Language};
use cofferdam_test_server::vector::Vector;

/// A vector to run.
#[derive(Debug)]
pub struct Case<'a> {
    pub slug: &'a str,
    pub language: &'a Language,
    pub name: String,
}

/// Runs the vectors in order, as many at a time as there are slots, and panics with the failures.
#[track_caller]
pub fn run_all(service: &Service, cases: VecDeque<Case<'_>>) {
    assert!(!cases.is_empty(), "nothing to run");
    println!("{} vectors", cases.len());
    let (cases, failures) = (Mutex::new(cases), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..CONCURRENCY {
            scope.spawn(|| {
                loop {
                    let next = cases.lock().unwrap().pop_front();
                    let Some(Case { slug, language, name }) = next else { return };
                    if let Err(why) = Vector::read(slug, &name).run(service, slug, language) {
                        failures.lock().unwrap().push(format!("{slug}/{name}: {why}"));
                    }
                }
            });
        }
    });
    let failures: Vec<String> = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
