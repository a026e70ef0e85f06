//! The peak of the service's memory while a client or a program sends much.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use cofferdam_test_server::client::request;
use cofferdam_test_server::host::resident_bytes;
use cofferdam_test_server::service::Setup;
use serde_json::json;

use super::scene::Engine;
use crate::report::Report;
use crate::stats::{Spread, median};

const MIB: f64 = 1_048_576.0;
const REST: Duration = Duration::from_millis(500);
/// Resets the peak of a process's resident memory.
const RESET_PEAK: &str = "5";
/// A gigabyte of zeros in a file of a tar: a block of a megabyte, compressed once, repeated.
const BOMB: &str = r"
import io, sys, tarfile, zlib
block, count = bytes(1 << 20), 1024
entry = tarfile.TarInfo('bomb')
entry.size = len(block) * count
head = entry.tobuf()
deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
piece = lambda data: deflate.compress(data) + deflate.flush(zlib.Z_FULL_FLUSH)
out = sys.stdout.buffer
out.write(b'\x1f\x8b\x08\0\0\0\0\0\0\xff' + piece(head))
out.write(piece(block) * count)
checksum = zlib.crc32(head)
for _ in range(count):
    checksum = zlib.crc32(block, checksum)
end = bytes(1024)
out.write(deflate.compress(end) + deflate.flush())
length = len(head) + entry.size + len(end)
for word in zlib.crc32(end, checksum), length & 0xffffffff:
    out.write(word.to_bytes(4, 'little'))
";

pub fn measure(report: &mut Report) {
    let rounds = report.pairs.div_ceil(10);
    let mut engine = Engine::start(Setup::shell());
    let workspace = engine.create(&json!({}));
    let args = json!(["-c", "head -c 60000000 /dev/zero"]);
    let body = json!({"cmd": "sh", "args": args, "timeout_ms": 60_000});
    let output = |engine: &mut Engine| {
        let result = engine.json("POST", &format!("{workspace}/run"), &body);
        assert_eq!(result["stdout_bytes"], 60_000_000, "{result:.400}");
    };
    row(report, "engine_output", rounds, &mut engine, output);
    let bomb = Command::new("python3").args(["-c", BOMB]).output().unwrap();
    assert!(bomb.status.success(), "{bomb:?}");
    let target = format!("{workspace}/tar?path=unpacked");
    let put = |engine: &mut Engine| {
        let length = format!("content-length: {}\r\n", bomb.stdout.len());
        let mut client = engine.service.connect();
        // The service may answer before it has read all.
        client.send(request("PUT", &target, &length));
        client.try_send(&bomb.stdout);
        let answer = client.answer();
        assert!([413, 422, 507].contains(&answer.status), "{answer:?}");
    };
    row(report, "engine_tar_bomb", rounds, &mut engine, put);
}

/// How much more memory the service has at most during `work` than before.
fn row(
    report: &mut Report,
    key: &str,
    rounds: usize,
    engine: &mut Engine,
    work: impl Fn(&mut Engine),
) {
    let pid = engine.service.pid();
    // What is allocated once stays.
    work(engine);
    let taken: Vec<(f64, f64)> = (0..rounds)
        .map(|_| {
            thread::sleep(REST);
            fs::write(format!("/proc/{pid}/clear_refs"), RESET_PEAK).unwrap();
            let before = resident_bytes(pid);
            work(engine);
            (peak_bytes(pid) as f64 / MIB, before as f64 / MIB)
        })
        .collect();
    let (peaks, befores) = (taken.iter().map(|it| it.0), taken.iter().map(|it| it.1));
    let more = Spread::of(taken.iter().map(|(peak, before)| peak - before));
    report.row(key, median(peaks), median(befores), more);
}

fn peak_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
