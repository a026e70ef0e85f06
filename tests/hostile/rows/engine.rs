//! Workspaces, their files, programs, forks and owners.

mod archives;
mod contexts;
mod disk;
mod doors;
mod forks;
mod owners;
mod planted;
mod sessions;

use crate::Row;

pub const ROWS: &[Row] = &[
    Row {
        id: "W114",
        guarantee: "no field of any request takes a path that leaves the workspace",
        attack: doors::paths_that_leave,
    },
    Row {
        id: "W115",
        guarantee: "no request reads or changes anything through a link that a program has planted",
        attack: planted::links,
    },
    Row {
        id: "W116",
        guarantee: "a directory swapped for a link at any moment leads no request out of the workspace",
        attack: planted::directory_swapped_for_a_link,
    },
    Row {
        id: "W117",
        guarantee: "a fifo, socket or device in place of a file delays no request, and is never read",
        attack: planted::special_files,
    },
    Row {
        id: "W118",
        guarantee: "a workspace holds no device, no set-id program and no hard link to a file of the host, and no request changes a file by another name",
        attack: planted::hard_links_and_nodes,
    },
    Row {
        id: "W119",
        guarantee: "whatever a program makes of metadata.json delays no request and takes no memory",
        attack: planted::metadata,
    },
    Row {
        id: "W120",
        guarantee: "an archive with one entry that leads out, or is no file, directory or link, writes nothing",
        attack: archives::unsafe_entries,
    },
    Row {
        id: "W121",
        guarantee: "a bomb of 1 GiB in any part of an archive is refused within 16 MiB of memory, and writes nothing",
        attack: archives::bombs,
    },
    Row {
        id: "W122",
        guarantee: "input that a program never reads is bounded",
        attack: sessions::unread_input,
    },
    Row {
        id: "W123",
        guarantee: "60 MB of output take at most 8 MiB of memory, and delay no program and no request",
        attack: sessions::endless_output,
    },
    Row {
        id: "W124",
        guarantee: "viewers that never read are sent away, slow no program, and there are at most 16",
        attack: sessions::deaf_viewers,
    },
    Row {
        id: "W125",
        guarantee: "a killed session leaves no process, whatever session it is in, whatever it ignores or holds",
        attack: sessions::stubborn_children,
    },
    Row {
        id: "W126",
        guarantee: "a forged answer of a kernel names no file but its results, and changes no other call or context",
        attack: contexts::forged_answers,
    },
    Row {
        id: "W127",
        guarantee: "no kind of file exceeds the bytes and inodes of a workspace, /tmp and $HOME included",
        attack: disk::every_way_to_fill_it,
    },
    Row {
        id: "W128",
        guarantee: "no node or attribute that a program makes hides, changes or adds a file in a fork",
        attack: forks::marks_of_overlays,
    },
    Row {
        id: "W129",
        guarantee: "a snapshot is of one moment, however programs write meanwhile, and all of them go on",
        attack: forks::writers_during_snapshots,
    },
    Row {
        id: "W130",
        guarantee: "ids of another token's workspace, session, context, snapshot and artifact are unknown at every door",
        attack: owners::ids_of_another_token,
    },
    Row {
        id: "W131",
        guarantee: "programs of two workspaces have different host uids, and reach neither each other's processes nor files",
        attack: owners::two_workspaces,
    },
];
