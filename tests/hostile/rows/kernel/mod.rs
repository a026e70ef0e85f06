//! Attacks on the kernel interface.

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
    row("D46", "a run can neither create nor enter a namespace", namespaces::creating_and_entering),
    row("D47", "a run changes no mount", mounts::changing),
    row(
        "D48",
        "a run traces no process, not even its own, and cannot inspect another run's init",
        system_calls::tracing,
    ),
    row(
        "D49",
        "administrative and exploit-prone calls are refused, and a language runtime survives each refusal",
        system_calls::administration,
    ),
    row("D50", "a run has no keyring through which to pass data to another", channels::keyrings),
    row("D51", "no socket reaches another run, the host or the network", channels::sockets),
    row(
        "D52",
        "a lock on a shared read-only file blocks only requests for the same lock and ends with its \
         run; leases are refused",
        channels::locks,
    ),
    row(
        "D53",
        "no concurrent or later run sees the System V and POSIX IPC objects of a run",
        persistence::ipc,
    ),
    row("D54", "no concurrent or later run sees a file that a run leaves", persistence::files),
    row("D55", "/proc shows a run only its own processes and nothing of the host", views::proc),
    row("D56", "a run neither sees nor changes control groups or /sys", views::sys),
    row(
        "D57",
        "a run has no terminal and injects input into none, in any encoding of the ioctl command",
        system_calls::terminals,
    ),
    row("D58", "no other ABI of the processor executes a system call", system_calls::other_abis),
    row(
        "D59",
        "no set-uid program and no call changes a run's user or gives it a capability",
        identity::privileges,
    ),
    row(
        "D60",
        "a run holds no descriptor of the server, and none of its descriptors leads out of its root",
        inherited::descriptors,
    ),
    row(
        "D61",
        "a run can neither read, execute nor replace the program that started it",
        inherited::programs,
    ),
    row(
        "D62",
        "host mounts made during a run do not appear in it, nor its mounts on the host",
        mounts::propagation,
    ),
    row(
        "D63",
        "a run gets exactly the documented environment, ids, signals and limits",
        identity::environment,
    ),
    row("D64", "no crash writes a core file", processors::crashes),
    row(
        "D65",
        "a run can neither turn off address randomization nor make every page executable",
        system_calls::personality,
    ),
    row(
        "D66",
        "no run gets a higher priority than another, whatever limits the server inherited",
        processors::priorities,
    ),
    row(
        "D67",
        "a run can only narrow its own filter, and escapes no limit by doing so",
        system_calls::own_filters,
    ),
    row(
        "D81",
        "no ioctl, prctl or madvise adds a key to a file system, reveals host names, loads a kernel \
         module or merges pages",
        commands::refused,
    ),
    row(
        "D82",
        "no lease or file notification of a run delays other users of a file",
        commands::notices,
    ),
    row(
        "D83",
        "a run flushes no disk of the host, unless a writable directory on it was bound",
        commands::flushes,
    ),
    row(
        "D84",
        "a run joins no multicast group: the kernel would announce it to the next tenant of the \
         network namespace",
        commands::multicast,
    ),
    row(
        "D110",
        "the number of file locks of a run is bounded, however they are taken",
        locks::piles_end,
    ),
    row(
        "D111",
        "a run that holds file locks ends as quickly as any other",
        locks::deaths_are_quick,
    ),
    row(
        "D112",
        "file locks on a shared file do not slow its opening and closing by others",
        locks::neighbours_close,
    ),
    row(
        "D113",
        "programs can take and release the file locks they need any number of times",
        locks::programs_lock,
    ),
    row(
        "D80",
        "no socket or fifo of the host receives data from a run, whenever it was created",
        nodes::sockets_of_host,
    ),
    row(
        "D85",
        "a run uses the device nodes it sees and changes none of the host",
        nodes::devices_of_host,
    ),
];
