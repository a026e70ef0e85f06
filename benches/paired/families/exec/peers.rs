//! What sandboxes cost beyond their start, with limits and with real programs in them, and what each isolates.

use std::process::Command;

use crate::bare::succeed;
use crate::isolation::{OBSERVED, observe};
use crate::peers::{GO_JUDGE, OURS, OURS_SERVED, PEERS, Peer, Sandbox, WIDE};
use crate::report::{Cell, Report, Words};
use crate::stats::{Pairs, millis};

const START: [&str; 1] = ["/bin/true"];
const PYTHON: [&str; 3] = ["/usr/bin/python3", "-c", "pass"];
const PROCESSES: usize = 200;
const TIMES: [&str; 4] =
    ["start, ms", "start with limits, ms", "200 processes ÷ bare", "`python3 -c pass` ÷ bare"];

pub fn measure(report: &mut Report) {
    let processes = processes();
    let programs: [&[&str]; 3] = [&START, &["/bin/sh", "-c", &processes], &PYTHON];
    let mut columns = Vec::new();
    for peer in [&OURS].into_iter().chain(&PEERS).chain([&OURS_SERVED, &GO_JUDGE]) {
        match peer.ready(None, &programs) {
            Ok(sandbox) => {
                let times = times(report, peer, sandbox, programs);
                let seen = observe(peer).into_iter().map(Cell::Word);
                columns.push((peer.name, times.into_iter().chain(seen).collect()));
            }
            Err(why) => rows_of(peer).iter().for_each(|key| report.leave_out(key, &why)),
        }
    }
    report.words(table(&columns));
}

/// The keys of the rows of a peer in this family.
fn rows_of(peer: &Peer) -> Vec<String> {
    let compared = match compared_with(peer) {
        Some((prefix, _)) => vec![format!("{prefix}_{}", peer.key)],
        None => Vec::new(),
    };
    compared.into_iter().chain(["forks", "python"].map(|it| format!("{it}_{}", peer.key))).collect()
}

/// The beginning of the key under which a start with limits is compared with ours, and which of ours.
fn compared_with(peer: &Peer) -> Option<(&'static str, &'static Peer)> {
    match peer.key {
        "exec" | "served" => None,
        "go_judge" => Some(("served", &OURS_SERVED)),
        _ if peer.has_limits => Some(("limits", &OURS)),
        _ => None,
    }
}

/// Measures the rows of a peer with the programs; returns what the table says of its times.
fn times(
    report: &mut Report,
    peer: &Peer,
    mut sandbox: Box<dyn Sandbox>,
    programs: [&[&str]; 3],
) -> Vec<Cell> {
    let [start, forks, python] = programs.map(|program| {
        let bare = || millis(|| succeed(Command::new(program[0]).args(&program[1..])));
        Pairs::take(report.pairs, || sandbox.time(program), bare)
    });
    drop(sandbox);
    let limited = with_limits(report, peer);
    report.paired(&format!("forks_{}", peer.key), &forks);
    report.paired(&format!("python_{}", peer.key), &python);
    let none = || Cell::Word("none".to_owned());
    vec![
        Cell::Figure(start.first()),
        limited.map_or_else(none, Cell::Figure),
        Cell::Figure(forks.ratio().median),
        Cell::Figure(python.ratio().median),
    ]
}

/// Starts a process, waits for its end, and so on. Without a variable, which a recipe would have to quote.
fn processes() -> String {
    let each: Vec<String> = (1..=PROCESSES).map(|each| each.to_string()).collect();
    format!("for each in {}; do /bin/true; done", each.join(" "))
}

/// The milliseconds of a start with limits, if there are any, compared with ours.
fn with_limits(report: &mut Report, peer: &Peer) -> Option<f64> {
    let key = |prefix| format!("{prefix}_{}", peer.key);
    let theirs = peer.has_limits.then(|| peer.ready(Some(WIDE), &[&START]))?;
    match (theirs, compared_with(peer)) {
        (Ok(mut theirs), Some((prefix, ours))) => {
            let mut ours = (ours.prepare)(Some(WIDE)).unwrap();
            let pairs = Pairs::take(report.pairs, || ours.time(&START), || theirs.time(&START));
            report.paired(&key(prefix), &pairs);
            Some(pairs.second())
        }
        (Ok(mut ours), None) => {
            let bare = || millis(|| succeed(&mut Command::new(START[0])));
            Some(Pairs::take(report.pairs, || ours.time(&START), bare).first())
        }
        (Err(why), Some((prefix, _))) => {
            report.leave_out(&key(prefix), &why);
            None
        }
        (Err(why), None) => panic!("{}: {why}", peer.name),
    }
}

/// A row for each time and observation, a column for each sandbox.
fn table(columns: &[(&str, Vec<Cell>)]) -> Words {
    let of = |row: usize| columns.iter().map(move |(_, cells)| cells[row].clone());
    let rows = TIMES.iter().chain(&OBSERVED).enumerate();
    let rows = rows
        .map(|(row, name)| [Cell::Word((*name).to_owned())].into_iter().chain(of(row)).collect());
    let names = columns.iter().map(|(name, _)| (*name).to_owned());
    Words {
        key: "isolation",
        title: "What sandboxes isolate, and their times",
        columns: [String::new()].into_iter().chain(names).collect(),
        rows: rows.collect(),
    }
}
