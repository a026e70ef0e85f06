//! The peak of the service's memory while a client or a program sends much.

use std::process::Command;
use std::time::Duration;

use cofferdam_test_server::client::request;
use cofferdam_test_server::service::{Setup, wait_until};
use serde_json::json;

use super::scene::Engine;
use crate::families::memory::{ServicePeak, row};
use crate::report::Report;

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

/// What a session prints, bytes.
const OUTPUT_BYTES: u64 = 60_000_000;
const PRINTED_WITHIN: Duration = Duration::from_secs(60);

pub fn measure(report: &mut Report) {
    output(report);
    tar_bomb(report);
}

/// Each round has a new service: freed memory of an earlier one would hide what this one takes.
fn output(report: &mut Report) {
    let script = format!("head -c {OUTPUT_BYTES} /dev/zero | tr '\\0' x | fold -w 79; sleep 600");
    let body = json!({"cmd": "sh", "args": ["-c", script]});
    let rounds = (0..rounds(report)).map(|_| {
        let mut engine = Engine::start(Setup::shell());
        let workspace = engine.create(&json!({}));
        engine.sh(&workspace, "true");
        ServicePeak::during(engine.service.pid(), || {
            let session = engine.json("POST", &format!("{workspace}/sessions"), &body);
            let session =
                format!("{workspace}/sessions/{}", session["session_id"].as_str().unwrap());
            wait_until("the whole output", PRINTED_WITHIN, || {
                let state = engine.json("GET", &session, &json!({}));
                state["bytes"].as_u64().unwrap() >= OUTPUT_BYTES
            });
        })
    });
    let taken: Vec<ServicePeak> = rounds.collect();
    row(report, "engine_output", &taken);
}

fn tar_bomb(report: &mut Report) {
    let bomb = Command::new("python3").args(["-c", BOMB]).output().unwrap();
    assert!(bomb.status.success(), "{bomb:?}");
    let rounds = (0..rounds(report)).map(|_| {
        let mut engine = Engine::start(Setup::shell());
        let workspace = engine.create(&json!({}));
        let target = format!("{workspace}/tar?path=unpacked");
        engine.sh(&workspace, "true");
        ServicePeak::during(engine.service.pid(), || {
            let length = format!("content-length: {}\r\n", bomb.stdout.len());
            let mut client = engine.service.connect();
            // The service may answer before it has read all.
            client.send(request("PUT", &target, &length));
            client.try_send(&bomb.stdout);
            let answer = client.answer();
            assert!([413, 422, 507].contains(&answer.status), "{answer:?}");
        })
    });
    let taken: Vec<ServicePeak> = rounds.collect();
    row(report, "engine_tar_bomb", &taken);
}

fn rounds(report: &Report) -> usize {
    report.pairs.div_ceil(10)
}
