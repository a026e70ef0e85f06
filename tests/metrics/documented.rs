//! The metrics, their documentation and the dashboard agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cofferdam_test_server::service::Setup;
use serde_json::Value;

use crate::jobs::with_jobs;
use crate::scrape;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The type and the labels of a metric.
type Shape = (String, BTreeSet<String>);

/// The table "What each metric means".
fn documented() -> BTreeMap<String, Shape> {
    let document = fs::read_to_string(format!("{ROOT}/docs/operations.md")).unwrap();
    let (_, section) = document.split_once("### What each metric means\n").unwrap();
    let rows = section.lines().take_while(|line| !line.starts_with('#'));
    let rows = rows.filter(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else { panic!("{line}") };
        assert!(meaning.len() > 5, "{name} has no explanation");
        let labels = labels.split(", ").filter(|label| !label.is_empty());
        let labels = labels.map(|label| label.trim_matches('`').to_owned()).collect();
        (name.trim_matches('`').to_owned(), (kind.to_owned(), labels))
    };
    let table: BTreeMap<_, _> = rows.clone().map(row).collect();
    assert_eq!(table.len(), rows.count(), "a metric has two rows");
    table
}

#[test]
fn every_metric_is_documented_with_its_type_and_labels_and_every_documented_one_exists() {
    // Job metrics exist only with jobs.
    let (service, _store) = with_jobs(Setup::shell());
    let scraped = scrape(&service);
    let exposed: BTreeMap<String, Shape> = scraped
        .types
        .iter()
        .map(|(name, kind)| (name.clone(), (kind.clone(), scraped.label_names(name))))
        .collect();
    assert_eq!(exposed, documented());
}

#[test]
fn every_reason_for_a_refusal_is_explained() {
    let document = fs::read_to_string(format!("{ROOT}/docs/operations.md")).unwrap();
    let row = document.lines().find(|line| line.starts_with("| `cofferdam_refusals_total`"));
    let scraped = scrape(&Setup::shell().start());
    let mut reasons = 0;
    for sample in scraped.all("cofferdam_refusals_total") {
        let reason = &sample.labels["reason"];
        assert!(row.unwrap().contains(&format!("`{reason}`")), "{reason}");
        reasons += 1;
    }
    assert!(reasons > 10, "{reasons}");
}

/// All expressions and queries of the dashboard.
fn queries(of: &Value, found: &mut Vec<String>) {
    match of {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| match value {
            Value::String(text) if ["expr", "query", "definition"].contains(&key.as_str()) => {
                found.push(text.clone());
            }
            value => queries(value, found),
        }),
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

/// The metrics that a query names.
fn named(query: &str) -> Vec<&str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("cofferdam_") || word.starts_with("process_")).collect()
}

#[test]
fn the_dashboard_queries_exactly_the_existing_metrics() {
    let text = fs::read_to_string(format!("{ROOT}/deploy/grafana/cofferdam.json")).unwrap();
    let mut found = Vec::new();
    queries(&serde_json::from_str(&text).unwrap(), &mut found);
    assert!(found.len() > 20, "{found:?}");
    let asked: BTreeSet<&str> = found.iter().flat_map(|query| named(query)).collect();
    let (service, _store) = with_jobs(Setup::shell());
    let scraped = scrape(&service);
    let series = scraped.series();
    let exposed: BTreeSet<&str> = series.iter().map(|(name, _)| name.as_str()).collect();
    let strange: Vec<_> = asked.difference(&exposed).collect();
    assert!(strange.is_empty(), "unknown metrics {strange:?}");
    let mut left_out: Vec<_> = exposed.difference(&asked).copied().collect();
    // The resident memory says more.
    left_out.retain(|name| *name != "process_virtual_memory_bytes");
    // The same counts under the names of an older service.
    left_out.retain(|name| !name.starts_with("term_executor_"));
    assert!(left_out.is_empty(), "no panel shows {left_out:?}");
}

#[test]
fn build_and_process_metrics_match_the_server() {
    let service = Setup::shell().start();
    let scraped = scrape(&service);
    let build: Vec<_> = scraped.all("cofferdam_build_info").collect();
    assert_eq!((build.len(), build[0].value), (1, 1.0));
    assert_eq!(build[0].labels["version"], env!("CARGO_PKG_VERSION"));
    let target = &build[0].labels["target"];
    assert!(target.starts_with(std::env::consts::ARCH) && target.contains("linux"), "{target}");
    let (threads, descriptors) =
        cofferdam_test_server::host::threads_and_descriptors(service.pid());
    let near = |name: &str, seen: usize| {
        let told = scraped.get(name, &[]);
        assert!((told - seen as f64).abs() <= 4.0, "{name}: {told} and {seen}");
    };
    near("process_threads", threads);
    near("process_open_fds", descriptors);
    let resident = cofferdam_test_server::host::resident_bytes(service.pid()) as f64;
    let told = scraped.get("process_resident_memory_bytes", &[]);
    assert!((told / resident - 1.0).abs() < 0.5, "{told} and {resident}");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_secs_f64() - scraped.get("process_start_time_seconds", &[]);
    assert!((-2.0..60.0).contains(&age), "{age} s");
}
