//! The class of the measured machine, and the time of the measurement.

use std::fmt;
use std::fs;
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

/// The properties that figures depend on, without any that identify the machine.
pub struct Machine {
    date: String,
    processor: String,
    cpus: usize,
    memory_gib: u64,
    kernel: String,
    cgroups: &'static str,
    /// The load of the minute before, over all CPUs: a busy machine misses goals.
    load: f64,
}

impl Machine {
    pub fn this() -> Self {
        let date = Command::new("date").args(["-u", "+%F"]).output().unwrap();
        let uname = nix::sys::utsname::uname().unwrap();
        let release = uname.release().to_string_lossy().into_owned();
        let kernel: Vec<&str> = release.split(['.', '-']).take(2).collect();
        let memory_kib: u64 = value_in("/proc/meminfo", "MemTotal").parse().unwrap();
        let load = fs::read_to_string("/proc/loadavg").unwrap();
        let is_version_2 = fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap();
        Self {
            date: String::from_utf8(date.stdout).unwrap().trim().to_owned(),
            processor: value_in("/proc/cpuinfo", "model name"),
            cpus: thread::available_parallelism().unwrap().get(),
            memory_gib: memory_kib.div_ceil(1 << 20),
            kernel: kernel.join("."),
            cgroups: if is_version_2 { "version 2" } else { "version 1" },
            load: load.split(' ').next().unwrap().parse().unwrap(),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "date": self.date,
            "processor": self.processor,
            "cpus": self.cpus,
            "memory_gib": self.memory_gib,
            "kernel": self.kernel,
            "cgroups": self.cgroups,
            "load_before": self.load,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, processor, cpus, memory_gib, kernel, cgroups, load } = self;
        write!(
            f,
            "{date} on {cpus} CPUs ({processor}), {memory_gib} GiB, Linux {kernel}, cgroup {cgroups}; \
             load {load} before"
        )
    }
}

/// The value of the first line `name: value kB`.
fn value_in(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map_or("unknown", |(_, value)| value).trim().trim_end_matches(" kB").to_owned()
}
