//! Large answers: through a rule, with the search for a secret, and through a plain tunnel.

use super::scene::EgressBench;
use crate::report::Report;
use crate::stats::Pairs;

const TRANSFER_BYTES: usize = 256 << 20;
/// The rows of each version of HTTP that programs speak with the proxy; `curl` alone chooses HTTP/2.
const VERSIONS: [(&str, [&str; 2]); 2] = [
    ("", ["egress_rule", "egress_search"]),
    ("--http1.1", ["egress_rule_http1", "egress_search_http1"]),
];

pub fn measure(report: &mut Report, scene: &mut EgressBench) {
    for (option, keys) in VERSIONS {
        let (mut rule, mut search) = (Pairs::default(), Pairs::default());
        for round in 0..=report.pairs.div_ceil(5) {
            // The tunnel is between the two that are compared with it.
            let ruled = speed(scene, option, &scene.ruled.clone(), "");
            let tunnelled = speed(scene, option, &scene.tunnelled.clone(), "");
            let searched = speed(scene, option, &scene.ruled.clone(), "/secret");
            if round > 0 {
                rule.push(ruled, tunnelled);
                search.push(searched, tunnelled);
            }
        }
        report.paired(keys[0], &rule);
        report.paired(keys[1], &search);
    }
}

/// How fast `curl` gets a large answer, megabytes a second. What it verifies is not compared here.
fn speed(scene: &mut EgressBench, option: &str, host: &str, rest: &str) -> f64 {
    let url = format!("{host}/bytes/{TRANSFER_BYTES}{rest}");
    let printed = scene.inside(&format!(
        "curl -sSk {option} -o /dev/null -w '%{{speed_download}} %{{size_download}}' {url}"
    ));
    let (speed, bytes) = printed.split_once(' ').unwrap();
    assert_eq!(bytes.parse::<usize>().unwrap(), TRANSFER_BYTES, "{printed}");
    speed.parse::<f64>().unwrap() / 1e6
}
