//! Privileged code of the server against files that a tenant controls.

mod kinds;
mod links;
mod trees;

use crate::Row;

pub use kinds::NODES;
pub use links::HARD_LINKS;

pub const ROWS: &[Row] = &[
    Row {
        id: "A1",
        guarantee: "the server follows no link that a run leaves in place of an output file",
        attack: links::links_at_every_path,
    },
    Row {
        id: "A2",
        guarantee: "a directory swapped for a link at any moment leads the server to nothing outside",
        attack: links::directory_swapped_for_a_link,
    },
    Row {
        id: "A3",
        guarantee: "the server follows no link at a path it writes for a run",
        attack: links::links_at_written_paths,
    },
    Row {
        id: "A4",
        guarantee: "cleanup removes, chowns and chmods nothing behind a link",
        attack: links::links_in_the_way_of_cleaning,
    },
    Row {
        id: "A5",
        guarantee: "a run makes no hard link to another user's file and leaves no set-id program",
        attack: links::hard_links_and_set_id_bits,
    },
    Row {
        id: "A6",
        guarantee: "a fifo or socket in place of a file blocks no reader",
        attack: kinds::fifos_for_files,
    },
    Row {
        id: "A7",
        guarantee: "a run makes no device node, not even in a bound host directory",
        attack: kinds::device_nodes,
    },
    Row {
        id: "A8",
        guarantee: "the server reads no endless file through a link",
        attack: links::links_to_endless_files,
    },
    Row {
        id: "A9",
        guarantee: "no file exceeds the size limit, not even a sparse one",
        attack: kinds::sparse_files,
    },
    Row {
        id: "A10",
        guarantee: "the server reads a growing file only up to a limit",
        attack: kinds::growing_files,
    },
    Row {
        id: "A11",
        guarantee: "the answer is valid JSON for every file name, and contains that name",
        attack: kinds::odd_names,
    },
    Row {
        id: "A12",
        guarantee: "a directory tree of any depth delays no answer",
        attack: trees::deep_trees,
    },
    Row {
        id: "A13",
        guarantee: "the number of files is limited, and cleanup delays no answer",
        attack: trees::inode_bomb,
    },
    Row {
        id: "A14",
        guarantee: "no mode, flag or attribute prevents the removal of a file",
        attack: trees::stubborn_files,
    },
    Row {
        id: "A15",
        guarantee: "a busy file system is unmounted with its run",
        attack: trees::busy_mounts,
    },
    Row {
        id: "A16",
        guarantee: "a run that removes its working directory is answered normally",
        attack: trees::no_working_directory,
    },
];
