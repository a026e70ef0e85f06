//! The service's memory while 64 programs read large answers slowly.

use super::scene::EgressBench;
use crate::families::memory::{ServicePeak, row};
use crate::report::Report;

const STREAMS: usize = 64;
/// Connections with one request each, and one connection with all of them.
const VERSIONS: [(&str, &str); 2] =
    [("egress_streams_http1", "--http1.1"), ("egress_streams", "--http2")];

pub fn measure(report: &mut Report) {
    for (key, option) in VERSIONS {
        // Each round has a new service: freed memory of an earlier one would hide what this one takes.
        let rounds = (0..report.pairs.div_ceil(10)).map(|_| {
            let mut scene = EgressBench::start();
            let script = format!(
                "curl -sSZk {option} --parallel-immediate --parallel-max {STREAMS} --limit-rate 100k -m 4 \
                 -o /dev/null -w '%{{size_download}}\\n' '{}/bytes/50000000?[1-{STREAMS}]' 2>/dev/null; :",
                scene.ruled
            );
            ServicePeak::during(scene.engine.service.pid(), || {
                let printed = scene.inside(&script);
                let begun = printed.lines().filter(|line| *line != "0").count();
                assert_eq!(begun, STREAMS, "{printed}");
            })
        });
        let taken: Vec<ServicePeak> = rounds.collect();
        row(report, key, &taken);
    }
}
