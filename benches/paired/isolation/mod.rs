//! Observes what each sandbox isolates: a process in it as the host sees it, and what programs in it can do.

mod behaviour;
mod host;
mod seen;

use crate::peers::{Limits, Peer, Sandbox};
use seen::Resource;

/// Limits that the programs of this module exceed, each in its own way.
const TIGHT: Limits = Limits { memory_mib: 128, processes: 16, cpu_seconds: 1, wall_seconds: 20 };
const SHORT: Limits = Limits { memory_mib: 128, processes: 16, cpu_seconds: 10, wall_seconds: 1 };

/// What the table says where something could not be observed.
const UNKNOWN: &str = "not seen";

/// The observations before those of limits.
const WALLS: usize = 9;
const LIMITS: usize = 5;
const RESOURCES: [Resource; 3] = [Resource::Memory, Resource::Processes, Resource::CpuTime];

/// The names of the observations, in order.
pub const OBSERVED: [&str; WALLS + LIMITS] = [
    "namespaces of its own",
    "seccomp filter",
    "Landlock",
    "no_new_privs",
    "capabilities",
    "user on the host",
    "root file system",
    "reads files of the host",
    "reaches servers of the host",
    "limit on memory",
    "limit on processes",
    "limit on CPU time",
    "limit on CPU time of all processes",
    "limit on time",
];

/// The observations of a sandbox that is ready, in the order of their names.
pub fn observe(peer: &Peer) -> Vec<String> {
    let with = |limits: Limits| (peer.prepare)(peer.has_limits.then_some(limits)).ok();
    let mut cells = walls((peer.prepare)(None).ok());
    cells.extend(resources(with(TIGHT)));
    cells.push(with(SHORT).and_then(|mut short| behaviour::holds_time(short.as_mut())).map(yes));
    cells.into_iter().map(|cell| cell.unwrap_or_else(|| UNKNOWN.to_owned())).collect()
}

fn walls(sandbox: Option<Box<dyn Sandbox>>) -> Vec<Option<String>> {
    let Some(mut sandbox) = sandbox else { return vec![None; WALLS] };
    let sandbox = sandbox.as_mut();
    let process = host::process_in(sandbox);
    let seen = |show: fn(&host::Process) -> Option<String>| process.as_ref().and_then(show);
    vec![
        seen(host::Process::namespaces),
        seen(host::Process::filter),
        host::landlock(sandbox),
        seen(host::Process::no_new_privileges),
        seen(host::Process::capabilities),
        seen(host::Process::user),
        seen(host::Process::root),
        behaviour::reads_host_files(sandbox),
        behaviour::reaches_host_servers(sandbox),
    ]
}

/// What holds each resource: a group, a limit of each process, or something else of which the host's `/proc` says
/// nothing.
fn resources(sandbox: Option<Box<dyn Sandbox>>) -> Vec<Option<String>> {
    let Some(mut sandbox) = sandbox else { return vec![None; LIMITS - 1] };
    let process = host::process_in(sandbox.as_mut());
    let held = |resource| {
        let is_held = behaviour::holds(sandbox.as_mut(), resource)?;
        let how = process.as_ref().and_then(|process| process.limited_by(resource));
        Some(how.filter(|_| is_held).map_or_else(|| yes(is_held), str::to_owned))
    };
    let mut cells: Vec<_> = RESOURCES.map(held).into();
    cells.push(behaviour::holds_together(sandbox.as_mut()).map(yes));
    cells
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}
