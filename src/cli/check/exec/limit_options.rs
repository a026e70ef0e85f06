//! The limits of `cofferdam exec` as options.

use std::time::Duration;

use clap::Args;

use crate::cli::options::value_parsers;
use cofferdam_core::Limits;
use cofferdam_core::values::cpus::parse_cpus_milli;

/// The limits of the run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitOptions {
    /// Wall-clock time, such as 500ms or 30s [default: 30s]
    #[arg(long, value_name = "D", value_parser = value_parsers::duration)]
    timeout: Option<Duration>,
    /// CPU time of all processes together [default: each process may use the timeout]
    #[arg(long, value_name = "D", value_parser = value_parsers::duration)]
    cpu_time: Option<Duration>,
    /// Memory, such as 256MiB, including files in /tmp and /workspace [default: 768MiB]
    #[arg(long, value_name = "SIZE", value_parser = value_parsers::bytes)]
    memory: Option<u64>,
    /// Processes and threads [default: 256]
    #[arg(long, value_name = "N", value_parser = value_parsers::count)]
    pids: Option<u64>,
    /// CPUs, such as 1.5 [default: all]
    #[arg(long, value_name = "N", value_parser = parse_cpus_milli)]
    cpus: Option<u64>,
    /// Bytes in all writable directories together [default: 512MiB]
    #[arg(long, value_name = "SIZE", value_parser = value_parsers::bytes)]
    disk: Option<u64>,
    /// Open files of each process [default: 256]
    #[arg(long, value_name = "N", value_parser = value_parsers::count)]
    files: Option<u64>,
    /// Bytes on each of stdout and stderr, 0 for no limit [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = value_parsers::bytes_or_unlimited)]
    output: Option<u64>,
}

impl LimitOptions {
    /// The limits of `preset` with these options applied.
    pub fn over(&self, preset: Limits) -> Limits {
        let mut limits = match self.timeout {
            Some(timeout) => preset.with_wall(timeout),
            None => preset,
        };
        if let Some(cpu_time) = self.cpu_time {
            limits = Limits { wall: limits.wall, ..limits.clone().with_wall(cpu_time) };
            limits.cpu_total_max = Some(cpu_time);
        }
        if let Some(disk) = self.disk {
            limits.disk_bytes_max = disk;
            // One file may use the whole disk limit.
            limits.file_bytes_max = limits.file_bytes_max.max(disk);
        }
        if let Some(output) = self.output {
            limits.output_bytes_max = (output > 0).then_some(output);
        }
        limits.memory_bytes_max = self.memory.unwrap_or(limits.memory_bytes_max);
        limits.processes_max = self.pids.unwrap_or(limits.processes_max);
        limits.cpus_milli_max = self.cpus.or(limits.cpus_milli_max);
        limits.open_files_max = self.files.unwrap_or(limits.open_files_max);
        limits
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct OnlyLimits {
        #[command(flatten)]
        limits: LimitOptions,
    }

    fn limits(options: &[&str]) -> Limits {
        let words = ["exec"].iter().chain(options);
        OnlyLimits::try_parse_from(words).unwrap().limits.over(Limits::default())
    }

    #[test]
    fn limits_without_an_option_keep_their_defaults() {
        assert_eq!(limits(&[]), Limits::default());
    }

    #[test]
    fn cpu_time_bounds_each_process_and_all_together() {
        let limits = limits(&["--timeout", "10s", "--cpu-time", "1500ms"]);
        assert_eq!(limits.wall, Duration::from_secs(10));
        assert_eq!(limits.cpu_seconds_max, 2);
        assert_eq!(limits.cpu_total_max, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn every_option_sets_its_limit() {
        let options =
            "--timeout 5s --memory 64MiB --pids 7 --cpus 1.5 --disk 1GiB --files 9 --output 0";
        let options: Vec<_> = options.split(' ').collect();
        let want = Limits {
            memory_bytes_max: 64 << 20,
            processes_max: 7,
            cpus_milli_max: Some(1500),
            disk_bytes_max: 1 << 30,
            file_bytes_max: 1 << 30,
            open_files_max: 9,
            output_bytes_max: None,
            ..Limits::default().with_wall(Duration::from_secs(5))
        };
        assert_eq!(limits(&options), want);
        assert_eq!(limits(&["--disk", "1MiB"]).file_bytes_max, Limits::default().file_bytes_max);
    }
}
