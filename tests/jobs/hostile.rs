//! Jobs that attack the capture of their output and the collection of their files.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::doors::{Door, EACH, doors};
use crate::workspace::{Workspace, with};

/// The peak memory of a process.
fn peak_bytes(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn a_gibibyte_of_output_is_hashed_but_not_kept_in_memory() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::empty();
    let request = workspace.request(&["head", "-c", "1073741824", "/dev/zero"]);
    let request = with(request, "limits.timeout_ms", 60_000);
    let request = with(request, "limits.cpu_time_ms", 60_000);
    let before = peak_bytes(doors.service().pid());
    let began = Instant::now();
    let result = doors.result(Door::Http, &request);
    assert_eq!(result["status"], "completed", "{}", result["error"]);
    assert_eq!(
        (&result["stdout"]["bytes"], &result["stdout"]["truncated"]),
        (&json!(1 << 30), &json!(true))
    );
    // The SHA-256 of 1 GiB of zeros.
    let digest = "49bc20df15e412a64472421e13fe86ff1c5165e18b2afccf160d4dc19fe68a14";
    assert_eq!(result["stdout"]["sha256"], digest);
    let grown = peak_bytes(doors.service().pid()).saturating_sub(before);
    eprintln!(
        "1 GiB of output in {:.1?}, peak memory grew by {} KiB",
        began.elapsed(),
        grown >> 10
    );
    assert!(grown < 16 << 20, "{grown} bytes");
}

#[test]
fn a_hundred_thousand_files_and_ten_thousand_artifacts_are_handled_within_limits() {
    let Some(doors) = doors() else { return };
    let workspace =
        Workspace::python("print(sum(len(files) for _, _, files in __import__('os').walk('.')))");
    for directory in 0..100 {
        let directory = workspace.path().join(format!("d{directory}"));
        fs::create_dir(&directory).unwrap();
        for file in 0..1000 {
            fs::write(directory.join(format!("f{file}")), "x").unwrap();
        }
    }
    let request = with(workspace.run_main(), "limits.snapshot_files", 100_001);
    let too_many = with(request.clone(), "limits.snapshot_files", 100_000);
    let request = with(request, "policy.artifacts", json!({"include": ["d1*/*"]}));
    let result = doors.result(Door::Http, &too_many);
    assert_eq!(result["status"], "setup_failed", "{}", result["error"]);
    let began = Instant::now();
    let result = doors.result(Door::Http, &request);
    assert_eq!(result["status"], "completed", "{}", result["error"]);
    assert_eq!(result["stdout"]["text"], "100001\n");
    assert_eq!(result["snapshot"]["files"], 100_001);
    assert_eq!(result["artifacts"].as_array().unwrap().len(), 100);
    let omitted = result["artifacts_omitted"].as_array().unwrap();
    assert!(omitted.iter().all(|file| file["reason"] == "count_limit"));
    assert_eq!(omitted.len(), 1000);
    assert_eq!(
        result["not_recorded"],
        json!(["artifacts_omitted: 9900 more"]),
        "{}",
        result["not_recorded"]
    );
    eprintln!("100,001 files copied, 11,000 matched, in {:.1?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(60));
}

/// Builds a tree of files that are hard to collect.
const TRAPS: &str = r"
import os, socket
os.mkdir('out'); os.chdir('out')
open('good', 'w').write('good')
os.symlink('/etc/passwd', 'to-passwd')
os.symlink('../../../../../../etc/passwd', 'up')
os.symlink('.', 'loop')
os.symlink('/proc/self/root', 'root')
os.mkfifo('fifo')
socket.socket(socket.AF_UNIX).bind('socket')
open(b'new\nline', 'w').write('odd')
open(b'not-\xff-text', 'w').write('odd')
open('x' * 255, 'w').write('long')
open('-rf', 'w').write('odd')
os.mkdir('closed'); open('closed/in', 'w').write('x'); os.chmod('closed', 0)
open('unreadable', 'w').write('x'); os.chmod('unreadable', 0)
with open('sparse', 'wb') as sparse: sparse.truncate(200 << 20)
os.link('good', 'linked')
for name in ['a', 'b']:
    os.mkdir(name); open(name + '/file', 'w').write(name)
os.rename('a', 'c'); os.symlink('c', 'a')
here = os.getcwd()
for level in range(2000):
    os.mkdir('d'); os.chdir('d')
open('bottom', 'w').write('x')
";

#[test]
fn regular_files_of_a_hostile_tree_are_kept_and_the_rest_listed() {
    let Some(doors) = doors() else { return };
    let workspace = Workspace::python(TRAPS);
    symlink("main.py", workspace.path().join("link")).unwrap();
    let request = with(workspace.run_main(), "policy.artifacts", json!({"include": ["out/**"]}));
    for door in EACH {
        let began = Instant::now();
        let result = doors.result(door, &request);
        assert_eq!(
            result["status"], "completed",
            "{door:?}: {} {}",
            result["error"], result["stderr"]["text"]
        );
        let kept: Vec<&str> = list(&result["artifacts"]);
        let long = format!("out/{}", "x".repeat(255));
        for name in [
            "out/-rf",
            "out/b/file",
            "out/c/file",
            "out/closed/in",
            "out/good",
            "out/linked",
            "out/new\nline",
            "out/sparse",
            "out/unreadable",
            &long,
        ] {
            assert!(kept.contains(&name), "{name:?} is not in {kept:?}");
        }
        assert!(
            !kept.iter().any(|path| path.starts_with("out/a") || path.contains("passwd")),
            "{kept:?}"
        );
        let omitted = &result["artifacts_omitted"];
        for (name, reason) in [
            ("out/a", "not_a_regular_file"),
            ("out/fifo", "not_a_regular_file"),
            ("out/loop", "not_a_regular_file"),
            ("out/root", "not_a_regular_file"),
            ("out/socket", "not_a_regular_file"),
            ("out/to-passwd", "not_a_regular_file"),
            ("out/up", "not_a_regular_file"),
            ("out/not-\u{fffd}-text", "not_text"),
        ] {
            let found = omitted.as_array().unwrap().iter().find(|file| file["path"] == name);
            assert_eq!(
                found.map(|file| &file["reason"]),
                Some(&json!(reason)),
                "{name}: {omitted}"
            );
        }
        let everything = result.to_string();
        assert!(!everything.contains("root:x:0"), "a record contains a host file");
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }
}

fn list(artifacts: &Value) -> Vec<&str> {
    artifacts.as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect()
}
