//! Workspaces, their files, programs, forks and owners.

mod archives;
mod chains;
mod contexts;
mod disk;
mod doors;
pub mod egress;
pub mod evaluations;
mod forks;
mod owners;
mod planted;
mod saves;
mod sessions;
mod shared;
mod staged;

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
        guarantee: "60 MB of output take at most 7 MiB of memory, and delay no program and no request",
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
    Row {
        id: "W132",
        guarantee: "no signal, trace or group of a program ends, stops or moves the init of its shared sandbox",
        attack: shared::init::signals_to_it,
    },
    Row {
        id: "W133",
        guarantee: "nothing that a program of a shared sandbox started outlives its time-out or kill, wherever it went",
        attack: shared::programs::escapes,
    },
    Row {
        id: "W134",
        guarantee: "a fork bomb in a shared sandbox dies as a whole, and its init and neighbours go on",
        attack: shared::programs::fork_bomb,
    },
    Row {
        id: "W135",
        guarantee: "no program inherits, opens, reads or talks to anything that the init of its shared sandbox holds",
        attack: shared::init::what_it_holds,
    },
    Row {
        id: "W136",
        guarantee: "a kernel of a shared sandbox forges no file but its results, no number and no size",
        attack: shared::kernels::forged_frames,
    },
    Row {
        id: "W137",
        guarantee: "a kernel answers for no context of another token, and no token executes in another's",
        attack: shared::kernels::forged_across_tokens,
    },
    Row {
        id: "W138",
        guarantee: "memory that runs out in a shared sandbox ends the program that the kernel picks, as a whole, and no other",
        attack: shared::programs::memory_hog,
    },
    Row {
        id: "W139",
        guarantee: "files that take all memory of a shared sandbox end the program that writes them, as a whole, and never its init",
        attack: shared::programs::memory_of_files,
    },
    Row {
        id: "W140",
        guarantee: "no program changes a mounted read-only tree, or what another workspace sees of it",
        attack: staged::mounted::shared_tree,
    },
    Row {
        id: "W145",
        guarantee: "no input and no place of a staging leads through a link out of the workspace, or out of the host's directories that the operator allows",
        attack: staged::staging::links,
    },
    Row {
        id: "W146",
        guarantee: "no name of an input, place, pattern or saved output leads out of the workspace",
        attack: staged::staging::names_that_leave,
    },
    Row {
        id: "W147",
        guarantee: "a directory swapped for a link at any moment leads no staging and no saved output out of the workspace",
        attack: staged::staging::directory_swapped_for_a_link,
    },
    Row {
        id: "W148",
        guarantee: "a staging brings no fifo, socket, device or set-id bit into a workspace, and joins no file to another",
        attack: staged::trees::special_files,
    },
    Row {
        id: "W149",
        guarantee: "a read-only tree stays as it was staged, wherever programs move it and whatever is staged over it",
        attack: staged::trees::read_only_trees,
    },
    Row {
        id: "W150",
        guarantee: "saved outputs are whole regular files of the workspace, however programs change them meanwhile",
        attack: staged::outputs::saved_files,
    },
    Row {
        id: "W151",
        guarantee: "a hostile tree comes back from a save the same, without devices, set-id bits and other owners, and writes nothing outside",
        attack: saves::harmless_trees,
    },
    Row {
        id: "W152",
        guarantee: "a save is of one moment, however programs write when the service is killed",
        attack: saves::writers_during_saves,
    },
    Row {
        id: "W153",
        guarantee: "the save and the wake of as many names, long names and levels as a workspace may have are quick and take little memory",
        attack: saves::large_trees,
    },
    Row {
        id: "W154",
        guarantee: "forks of forks, 70 deep and many at once, leave no mount, process, descriptor, memory or charge, and snapshots are counted",
        attack: chains::forks_without_end,
    },
    Row {
        id: "W155",
        guarantee: "what another token stages, collects, saves, parks or forks is unknown at every door",
        attack: owners::kept_things_of_another_token,
    },
    Row {
        id: "W160",
        guarantee: "a program with a network reaches none of the service's own listeners, under any name of the host",
        attack: egress::hosts::own_listeners,
    },
    Row {
        id: "W161",
        guarantee: "no spelling of a link-local address is reached, though the list names it",
        attack: egress::hosts::metadata_of_the_cloud,
    },
    Row {
        id: "W162",
        guarantee: "a name that resolves to an address that is not public is not reached, whatever its case or dots",
        attack: egress::hosts::name_of_the_host,
    },
    Row {
        id: "W163",
        guarantee: "an address in any spelling needs an entry that is an address",
        attack: egress::hosts::addresses_in_other_spellings,
    },
    Row {
        id: "W164",
        guarantee: "each request of a kept connection is judged",
        attack: egress::connections::second_request_on_a_kept_connection,
    },
    Row {
        id: "W165",
        guarantee: "no program takes the port of the proxy, and no process of the sandbox has its socket",
        attack: egress::connections::the_listener_itself,
    },
    Row {
        id: "W166",
        guarantee: "no child of a program that has ended, or was killed in a shared sandbox, keeps a connection",
        attack: egress::connections::a_child_that_keeps_a_tunnel,
    },
    Row {
        id: "W167",
        guarantee: "nothing leaves a sandbox with a network but through the proxy",
        attack: egress::other_ways::every_other_way_out,
    },
    Row {
        id: "W168",
        guarantee: "no request is judged for one host and sent to another",
        attack: egress::hosts::requests_in_two_readings,
    },
    Row {
        id: "W169",
        guarantee: "a sandbox has at most 64 connections, and closed ones make room",
        attack: egress::connections::more_connections_than_there_may_be,
    },
    Row {
        id: "W182",
        guarantee: "the authority of a sandbox is constrained to the hosts of its rules, and its keys are not in the sandbox",
        attack: egress::rules::an_authority_that_speaks_for_another_host,
    },
    Row {
        id: "W183",
        guarantee: "a request in a tunnel to a host with rules names that host, and so does its TLS",
        attack: egress::rules::a_request_for_another_host_than_its_tunnel,
    },
    Row {
        id: "W184",
        guarantee: "a secret that a host sends back, in whatever pieces, does not reach the program",
        attack: egress::rules::a_secret_that_a_host_sends_back,
    },
    Row {
        id: "W185",
        guarantee: "a placeholder sent to a host that is not its secret's leaves neither as it is nor as the secret",
        attack: egress::rules::a_placeholder_for_another_host,
    },
];
