//! Throughput and latency with many clients, compared with as many bare `make test`.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use cofferdam_test_server::service::{Service, Setup};

use crate::bare;
use crate::plot::{Point, Series};
use crate::report::{Report, Table};
use crate::runner::Runner;
use crate::stats::{Pairs, as_millis, median, quantile};

const CLIENTS: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// The number of clients of the row with a goal, which gets the most rounds.
const GOAL_CLIENTS: usize = 8;
const SLOTS: usize = 32;
/// Warm-up runs: more than the standby pool can hold.
const LEAD_IN_RUNS: usize = SLOTS + 16;
const RUNS_MIN: usize = 64;
const RUNS_PER_CLIENT: usize = 8;
const NAMES: [&str; 3] = ["Cofferdam", "Cofferdam, none prepared", "bare make test"];

/// A worker; each call does one run.
type Worker<'a> = Box<dyn FnMut() + Send + 'a>;

pub fn measure(report: &mut Report) {
    let with_pool = service(|setup| setup);
    let none_prepared = service(|setup| setup.env("STANDBY_MAX", "0"));
    let path = with_pool.workspace().path();
    let arms: [&dyn Fn() -> Worker<'static>; 3] =
        [&|| ours(&with_pool), &|| ours(&none_prepared), &|| bare_worker(path)];
    let mut series = NAMES.map(|name| Series { name, points: Vec::new() });
    let mut rows = Vec::new();
    for clients in CLIENTS {
        let is_goal = clients == GOAL_CLIENTS;
        let rounds = if is_goal { report.pairs } else { report.pairs.div_ceil(5) };
        let (mut pairs, mut taken) = (Pairs::default(), [const { Vec::new() }; 3]);
        for round in 0..rounds {
            // The order rotates from round to round.
            for turn in 0..arms.len() {
                let arm = (round + turn) % arms.len();
                taken[arm].push(Round::take(clients, arms[arm]));
            }
            pairs.push(taken[0][round].per_second, taken[2][round].per_second);
        }
        let mut row = vec![clients as f64];
        for (series, taken) in series.iter_mut().zip(&taken) {
            let point = point(clients, taken);
            let per_second = median(taken.iter().map(|round| round.per_second));
            row.extend([per_second, point.median_ms, point.p99_ms]);
            series.points.push(point);
        }
        rows.push(row);
        if is_goal {
            report.paired("throughput_8", &pairs);
        }
    }
    report.table(Table {
        key: "concurrency",
        title: "Clients at once: ours, ours with `STANDBY_MAX=0`, bare `make test`",
        columns: &[
            "clients",
            "ours, runs/s",
            "ours, median ms",
            "ours, p99 ms",
            "none prepared, runs/s",
            "none prepared, median ms",
            "none prepared, p99 ms",
            "bare, runs/s",
            "bare, median ms",
            "bare, p99 ms",
        ],
        rows,
    });
    report.plot(series.into());
}

fn service(change: fn(Setup) -> Setup) -> Service {
    let setup = Setup::of(bare::workspace(":", 10, 4096));
    change(setup.env("RUN_CONCURRENCY", SLOTS.to_string())).start()
}

fn ours(service: &Service) -> Worker<'static> {
    let mut runner = Runner::of(service);
    Box::new(move || _ = runner.run())
}

fn bare_worker(path: &Path) -> Worker<'static> {
    let path = path.to_owned();
    Box::new(move || bare::make_test(&path))
}

fn point(clients: usize, taken: &[Round]) -> Point {
    let latencies = || taken.iter().flat_map(|round| round.latencies_ms.iter().copied());
    Point {
        clients: clients as f64,
        median_ms: quantile(latencies(), 0.5),
        p99_ms: quantile(latencies(), 0.99),
    }
}

/// The results of many runs by several workers without pauses.
struct Round {
    per_second: f64,
    latencies_ms: Vec<f64>,
}

impl Round {
    /// Measures between the ends of two runs, with every worker busy before and after.
    fn take(workers: usize, worker: &dyn Fn() -> Worker<'static>) -> Self {
        let counted = RUNS_MIN.max(RUNS_PER_CLIENT * workers);
        let runs = LEAD_IN_RUNS + counted + workers;
        let (next, together) = (AtomicUsize::new(0), Barrier::new(workers));
        let workers: Vec<Worker<'static>> = (0..workers).map(|_| worker()).collect();
        let work = |mut run: Worker<'static>| {
            together.wait();
            let mut ended = Vec::new();
            while next.fetch_add(1, Ordering::Relaxed) < runs {
                let began = Instant::now();
                run();
                ended.push((Instant::now(), as_millis(began.elapsed())));
            }
            ended
        };
        let work = &work;
        let mut ended: Vec<(Instant, f64)> = thread::scope(|scope| {
            let threads: Vec<_> =
                workers.into_iter().map(|run| scope.spawn(move || work(run))).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        ended.sort_by_key(|(at, _)| *at);
        let window = &ended[LEAD_IN_RUNS - 1..LEAD_IN_RUNS + counted];
        let took = window[counted].0 - window[0].0;
        Self {
            per_second: counted as f64 / took.as_secs_f64(),
            latencies_ms: window[1..].iter().map(|(_, took)| *took).collect(),
        }
    }
}
