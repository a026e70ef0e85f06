//! A parent with privileges against files that a tenant controls.

mod kinds;
mod links;
mod trees;

use crate::Row;

pub const ROWS: &[Row] = &[
    Row {
        id: "A1",
        guarantee: "a link where a run leaves something is never read through",
        attack: links::links_at_every_path,
    },
    Row {
        id: "A2",
        guarantee: "a directory that becomes a link at any moment leads nobody outside",
        attack: links::directory_swapped_for_a_link,
    },
    Row {
        id: "A3",
        guarantee: "a link at a path the parent writes for a run leads it nowhere",
        attack: links::links_at_written_paths,
    },
    Row {
        id: "A4",
        guarantee: "no clean-up removes, chowns or chmods anything behind a link",
        attack: links::links_in_the_way_of_cleaning,
    },
    Row {
        id: "A5",
        guarantee: "a run links to nobody else's files and leaves no set-id program",
        attack: links::hard_links_and_set_id_bits,
    },
    Row {
        id: "A6",
        guarantee: "a fifo or socket where a file was keeps nobody waiting",
        attack: kinds::fifos_for_files,
    },
    Row {
        id: "A7",
        guarantee: "a run makes no device node, not in a directory of the host either",
        attack: kinds::device_nodes,
    },
    Row {
        id: "A8",
        guarantee: "links to endless files are read by nobody",
        attack: links::links_to_endless_files,
    },
    Row {
        id: "A9",
        guarantee: "a file is never larger than the limit, not even a sparse one",
        attack: kinds::sparse_files,
    },
    Row {
        id: "A10",
        guarantee: "a file that grows while it is read is read to a limit",
        attack: kinds::growing_files,
    },
    Row {
        id: "A11",
        guarantee: "whatever a file's name is, the answer is valid JSON that says it",
        attack: kinds::odd_names,
    },
    Row {
        id: "A12",
        guarantee: "a directory tree of any depth costs the service nothing",
        attack: trees::deep_trees,
    },
    Row {
        id: "A13",
        guarantee: "files are limited in number, and cleaning up delays no answer",
        attack: trees::inode_bomb,
    },
    Row {
        id: "A14",
        guarantee: "no mode, flag or attribute keeps a file from going",
        attack: trees::stubborn_files,
    },
    Row {
        id: "A15",
        guarantee: "a file system in use goes with its run",
        attack: trees::busy_mounts,
    },
    Row {
        id: "A16",
        guarantee: "a run that does away with its working directory is answered as any",
        attack: trees::no_working_directory,
    },
];
