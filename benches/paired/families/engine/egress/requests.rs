//! Small requests, and the lines of an event stream.

use super::scene::EgressBench;
use crate::report::Report;
use crate::stats::{Pairs, Spread, median};

/// Requests of one connection.
const REQUESTS: usize = 50;

pub fn measure(report: &mut Report, scene: &mut EgressBench) {
    let (mut firsts, mut laters) = (Pairs::default(), Pairs::default());
    for round in 0..=report.pairs {
        let (first, later) = through(scene);
        let (direct_first, direct_later) = direct(scene);
        // Before the first round neither side has been asked.
        if round > 0 {
            firsts.push(first, direct_first);
            laters.push(later, direct_later);
        }
    }
    report.paired("egress_first", &firsts);
    report.paired("egress_later", &laters);
    event_lines(report, scene);
}

fn through(scene: &mut EgressBench) -> (f64, f64) {
    let script = script(&scene.ruled);
    times(&scene.inside(&script))
}

fn direct(scene: &EgressBench) -> (f64, f64) {
    // Both ports are the same host's.
    times(&scene.outside(&script(&scene.tunnelled)))
}

/// Asks again and again over one connection, and prints how long each request took, in seconds.
fn script(host: &str) -> String {
    format!("curl -sS -o /dev/null -w '%{{time_total}}\\n' '{host}/?[1-{REQUESTS}]'")
}

/// The first time and the median of the later ones, milliseconds.
fn times(printed: &str) -> (f64, f64) {
    let times: Vec<f64> = printed.lines().map(|line| line.parse::<f64>().unwrap() * 1e3).collect();
    assert_eq!(times.len(), REQUESTS, "{printed}");
    (times[0], median(times[1..].iter().copied()))
}

fn event_lines(report: &mut Report, scene: &mut EgressBench) {
    let script = format!(
        "curl -sSN {}/events | while read -r _ sent; do [ -z \"$sent\" ] || \
         echo $EPOCHREALTIME $sent; done",
        scene.ruled
    );
    let (mut longest, mut medians) = (Vec::new(), Vec::new());
    for _ in 0..report.pairs.div_ceil(10) {
        let printed = scene.inside(&script);
        let delays: Vec<f64> = printed.lines().map(delay).collect();
        longest.push(delays.iter().copied().fold(0.0, f64::max));
        medians.push(median(delays.into_iter()));
    }
    let longest = Spread::of(longest.into_iter());
    report.row("egress_event", longest.median, median(medians.into_iter()), longest);
}

/// How long after it was sent a line came, milliseconds.
fn delay(line: &str) -> f64 {
    let times: Vec<f64> = line.split(' ').map(|time| time.parse().unwrap()).collect();
    (times[0] - times[1]) * 1e3
}
