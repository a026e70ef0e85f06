//! Programs that are started ahead of their runs, seen from outside.

use std::fs;
use std::path::PathBuf;

use crate::host::{Process, descendants, inits};
use crate::service::Service;

/// The value of the counter or gauge `cofferdam_prestart_<name>`, over all its labels.
#[track_caller]
pub fn metric(service: &Service, name: &str) -> f64 {
    let metrics = service.get("/metrics").body;
    let name = format!("cofferdam_prestart_{name}");
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(&name)?;
        rest.starts_with([' ', '{'])
            .then(|| rest.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
    });
    values.sum()
}

/// The value of the gauge `cofferdam_prestart_<name>` of the language `slug`; 0 if that has none.
#[track_caller]
pub fn metric_of(service: &Service, name: &str, slug: &str) -> f64 {
    let metrics = service.get("/metrics").body;
    let name = format!("cofferdam_prestart_{name}{{language=\"{slug}\"}} ");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
    value.map_or(0.0, |value| value.trim().parse().unwrap())
}

/// The inits of the sandboxes whose program waits for its run: a thread sleeps in a read of a pipe
/// that the server holds too. No run has such an input.
pub fn warm_sandboxes(pid: i32) -> Vec<Process> {
    let held = targets(&format!("/proc/{pid}/fd"));
    let waits = |init: &Process| {
        descendants(init.pid).iter().any(|program| {
            threads(program.pid).iter().any(|thread| {
                read_by(thread).is_some_and(|pipe| {
                    pipe.to_string_lossy().starts_with("pipe:[") && held.contains(&pipe)
                })
            })
        })
    };
    inits(pid).into_iter().filter(waits).collect()
}

fn targets(directory: &str) -> Vec<PathBuf> {
    let links = fs::read_dir(directory).into_iter().flatten().flatten();
    links.filter_map(|link| fs::read_link(link.path()).ok()).collect()
}

fn threads(pid: i32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// What the thread reads, if it sleeps in a read.
fn read_by(thread: &std::path::Path) -> Option<PathBuf> {
    let call = fs::read_to_string(thread.join("syscall")).ok()?;
    let mut words = call.split(' ');
    if words.next()?.parse::<libc::c_long>().ok()? != libc::SYS_read {
        return None;
    }
    let fd = u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    fs::read_link(thread.join(format!("fd/{fd}"))).ok()
}
