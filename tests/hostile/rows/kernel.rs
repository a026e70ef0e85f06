//! The interface of the kernel.

mod answers;
mod channels;
mod commands;
mod identity;
mod inherited;
mod locks;
mod mounts;
mod namespaces;
mod nodes;
mod persistence;
mod processors;
mod system_calls;
mod views;

use crate::Row;
use crate::Unexercised;
use crate::target::Target;

type Attack = fn(&Target) -> Result<(), Unexercised>;

const fn row(id: &'static str, guarantee: &'static str, attack: Attack) -> Row {
    Row { id, guarantee, attack }
}

pub const ROWS: &[Row] = &[
    row(
        "D46",
        "a run gets no namespace of its own and into none that is there",
        namespaces::none_to_be_had,
    ),
    row("D47", "a run changes nothing about what is mounted", mounts::none_to_be_changed),
    row(
        "D48",
        "a run traces no process, not even its own, and looks into no other run's init",
        system_calls::tracing,
    ),
    row(
        "D49",
        "calls of administrators and of exploits are refused, and a runtime outlives each refusal",
        system_calls::administration,
    ),
    row("D50", "a run has no keyring in which to leave anything for another", channels::keyrings),
    row("D51", "no socket reaches another run, the host or anything beyond", channels::sockets),
    row(
        "D52",
        "a lock on a shared read-only file stops only who asks for the same lock, and ends with \
         its run; a lease is not to be had",
        channels::locks,
    ),
    row(
        "D53",
        "System V and POSIX objects are seen by no run beside or after the one that made them",
        persistence::ipc,
    ),
    row(
        "D54",
        "a file a run leaves anywhere is seen by no run beside or after it",
        persistence::files,
    ),
    row("D55", "/proc shows a run its own processes and nothing of the host", views::proc),
    row("D56", "a run sees no control group and nothing of /sys, and changes neither", views::sys),
    row(
        "D57",
        "a run has no terminal and types into none, however the command is spelt",
        system_calls::terminals,
    ),
    row("D58", "no other ABI of the processor carries a call out", system_calls::other_abis),
    row(
        "D59",
        "no set-uid program and no call makes a run anybody else or gives it a capability",
        identity::privileges,
    ),
    row(
        "D60",
        "a run holds no descriptor of the server's, and nothing it holds leads out of its root",
        inherited::descriptors,
    ),
    row(
        "D61",
        "a run can neither read, start nor replace the program that started it",
        inherited::programs,
    ),
    row(
        "D62",
        "mounts made on the host during a run do not show in it, nor its mounts on the host",
        mounts::on_their_side,
    ),
    row(
        "D63",
        "a run is given the environment, ids, signals and limits that are promised, and no more",
        identity::environment,
    ),
    row("D64", "no crash writes a core file", processors::crashes),
    row(
        "D65",
        "a run cannot turn off address randomisation or make every page executable",
        system_calls::personality,
    ),
    row(
        "D66",
        "a run gets no better priority than any other, whatever limits the server inherited",
        processors::priorities,
    ),
    row(
        "D67",
        "a run may only narrow its own filter, and by that it escapes no limit",
        system_calls::own_filters,
    ),
    row(
        "D81",
        "no command of ioctl, prctl or madvise adds a key to a file system, tells what the host \
         calls anything, loads a module or has pages merged",
        commands::refused,
    ),
    row(
        "D82",
        "no lease and no notice of a run makes others wait for a file or pay for it",
        commands::notices,
    ),
    row(
        "D83",
        "a run flushes no disk of the host, unless it was given a directory there to write to",
        commands::flushes,
    ),
    row(
        "D84",
        "a run joins no multicast group, of which the kernel would tell the next tenant of its \
         network namespace",
        commands::multicast,
    ),
    row("D110", "the file locks of a run are few, however they are taken", locks::piles_end),
    row("D111", "a run that holds file locks dies as any other", locks::deaths_are_quick),
    row(
        "D112",
        "file locks on a shared file slow nobody who opens and closes it",
        locks::neighbours_close,
    ),
    row(
        "D113",
        "the file locks that programs need are there, however often they are taken and given back",
        locks::programs_lock,
    ),
    row(
        "D80",
        "no socket and no fifo of the host takes anything from a run, whenever it was made",
        nodes::sockets_of_host,
    ),
    row(
        "D85",
        "a run uses the device nodes it is shown and changes nothing about the host's",
        nodes::devices_of_host,
    ),
];
