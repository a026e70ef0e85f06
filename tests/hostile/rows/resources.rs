//! Memory, CPU, disk, descriptors, output.

mod memory;
mod output;
mod tables;

use crate::Row;

pub const ROWS: &[Row] = &[
    Row {
        id: "C34",
        guarantee: "memory use ends at the limit, and only the run that crosses it is killed",
        attack: memory::beyond_the_limit,
    },
    Row {
        id: "C35",
        guarantee: "a program whose zeroed data exceeds its memory ends like any that exceeds the limit",
        attack: memory::huge_bss,
    },
    Row {
        id: "C36",
        guarantee: "kernel memory of a run is counted, limited and freed",
        attack: memory::held_by_the_kernel,
    },
    Row { id: "C37", guarantee: "no run exceeds its memory by swapping", attack: memory::swap },
    Row {
        id: "C38",
        guarantee: "copied pages are counted, and pages of dead processes are freed",
        attack: memory::copies_and_the_dead,
    },
    Row {
        id: "C39",
        guarantee: "locked pages are counted, and none comes from the host's huge page pool",
        attack: memory::locked_and_huge_pages,
    },
    Row {
        id: "C40",
        guarantee: "the disk of a run is limited and separate from the host's",
        attack: memory::full_disk,
    },
    Row {
        id: "C41",
        guarantee: "a flood of output is cut off at once and does not grow the server",
        attack: output::floods,
    },
    Row {
        id: "C42",
        guarantee: "a run cannot delay its end through its pipes",
        attack: output::pipes_held,
    },
    Row {
        id: "C43",
        guarantee: "output is exact to the byte, and valid text for any bytes",
        attack: output::exact_and_text,
    },
    Row {
        id: "C44",
        guarantee: "no kernel table that a run exhausts affects another run",
        attack: tables::everything_with_a_number,
    },
    Row {
        id: "C45",
        guarantee: "unread input and closed streams delay no run",
        attack: tables::standard_streams,
    },
];
