//! Attacks on and by programs that are started ahead of their runs.

mod burst;
mod misbehaving;
mod scene;
mod traces;

use crate::Row;

pub const ROWS: &[Row] = &[
    Row {
        id: "P219",
        guarantee: "a run in a runtime started ahead finds what a new one finds, and nothing of other runs or the service",
        attack: traces::of_others,
    },
    Row {
        id: "P220",
        guarantee: "a prestart that forks, without end or for the run to find, costs no run and leaves no process",
        attack: misbehaving::forks,
    },
    Row {
        id: "P221",
        guarantee: "a prestart that hangs costs no run and ends with the service",
        attack: misbehaving::hangs,
    },
    Row {
        id: "P222",
        guarantee: "a prestart that floods its output, its files or its memory costs no run and leaves nothing",
        attack: misbehaving::floods,
    },
    Row {
        id: "P223",
        guarantee: "a prestart that dies before or after it is ready costs no run",
        attack: misbehaving::dies,
    },
    Row {
        id: "P224",
        guarantee: "a prestart that lies about being ready, or lays traps for posted files, costs no run",
        attack: misbehaving::lies,
    },
    Row {
        id: "P225",
        guarantee: "fifty runs at once while runtimes are started have their answers, within the memory for these",
        attack: burst::while_runtimes_start,
    },
];
