//! Memory, CPU, disk, descriptors, output.

mod memory;
mod output;
mod tables;

use crate::Row;

pub const ROWS: &[Row] = &[
    Row {
        id: "C34",
        guarantee: "memory ends at the limit, for the run alone",
        attack: memory::beyond_the_limit,
    },
    Row {
        id: "C35",
        guarantee: "a program with more zeroes than memory ends as any that takes too much",
        attack: memory::huge_bss,
    },
    Row {
        id: "C36",
        guarantee: "what the kernel keeps for a run is counted, limited and given back",
        attack: memory::held_by_the_kernel,
    },
    Row { id: "C37", guarantee: "no run gets memory by going to swap", attack: memory::swap },
    Row {
        id: "C38",
        guarantee: "copied pages count, and those of the dead are free again",
        attack: memory::copies_and_the_dead,
    },
    Row {
        id: "C39",
        guarantee: "locked pages count as others, and none comes from the host's reserved pool",
        attack: memory::locked_and_huge_pages,
    },
    Row {
        id: "C40",
        guarantee: "the disk of a run ends at its limit and is not the host's",
        attack: memory::full_disk,
    },
    Row {
        id: "C41",
        guarantee: "a flood of output is cut at once and costs the server nothing",
        attack: output::floods,
    },
    Row {
        id: "C42",
        guarantee: "nothing a run does to its pipes delays its end",
        attack: output::pipes_held,
    },
    Row {
        id: "C43",
        guarantee: "output is exact to the byte, and text whatever its bytes",
        attack: output::exact_and_text,
    },
    Row {
        id: "C44",
        guarantee: "everything the kernel has a table for runs out inside only",
        attack: tables::everything_with_a_number,
    },
    Row {
        id: "C45",
        guarantee: "input nobody reads and streams that are closed disturb nobody",
        attack: tables::standard_streams,
    },
];
