//! Archives of hostile clients.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::Unexercised;
use crate::engine::{PeakMemory, Workspace, promptly};
use crate::target::Target;

const MIB: usize = 1 << 20;
/// How much more memory a bomb of 1 GiB may take.
const GROWTH_MIB: u64 = 16;
/// The end of an archive.
const END: [u8; 1024] = [0; 1024];

/// An archive with one file.
pub fn of_one_file(name: &str) -> Vec<u8> {
    [entry(name, b'0', "", b"x"), END.to_vec()].concat()
}

/// An entry with this name, type, target of a link, and contents. All bits of its mode are set.
fn entry(name: &str, kind: u8, target: &str, content: &[u8]) -> Vec<u8> {
    let padding = content.len().next_multiple_of(512) - content.len();
    [header(name, kind, target, content.len()), content.to_vec(), vec![0; padding]].concat()
}

fn header(name: &str, kind: u8, target: &str, bytes: usize) -> Vec<u8> {
    let mut header = vec![0_u8; 512];
    let mut set = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    set(0, name.as_bytes());
    set(100, b"0007777\0");
    set(108, b"0000000\0");
    set(116, b"0000000\0");
    set(124, format!("{bytes:011o}\0").as_bytes());
    set(136, b"00000000000\0");
    set(148, b"        ");
    set(156, &[kind]);
    set(157, target.as_bytes());
    set(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// An extension that gives the next entry this path or target.
fn extended(key: &str, value: &str) -> Vec<u8> {
    let rest = format!(" {key}={value}\n");
    let length = (1..10).find_map(|digits| {
        let length = rest.len() + digits;
        (length.to_string().len() == digits).then_some(length)
    });
    entry("ext", b'x', "", format!("{}{rest}", length.unwrap()).as_bytes())
}

fn put(workspace: &Workspace<'_>, archive: &[u8]) -> (u16, String) {
    let reply = promptly("an archive", || workspace.ask("PUT", "/tar?path=work/to", archive));
    (reply.status, reply.json()["code"].as_str().unwrap_or_default().to_owned())
}

/// Archives with one entry that leads out, or is no file, directory or link.
pub fn unsafe_archives() -> Vec<(&'static str, Vec<u8>)> {
    let file = |name: &str| entry(name, b'0', "", b"x");
    let link = |name: &str, to: &str| entry(name, b'2', to, b"");
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a path upwards", file("../out")),
        ("a path upwards and back", file("a/../../to/x")),
        ("an absolute path", file("/etc/planted")),
        ("an absolute path into the workspace", file("/workspace/x")),
        ("a path upwards in an extension", [extended("path", "../out"), file("x")].concat()),
        ("a long name upwards", [entry("n", b'L', "", b"../out\0"), file("x")].concat()),
        ("a link out", link("l", "/etc/passwd")),
        ("a link to the host's processes", link("l", "/proc/self/root")),
        ("a link upwards", link("d/l", "../../../../etc")),
        ("a link upwards through a name", link("l", "x/../../../../etc")),
        ("a link out in an extension", [extended("linkpath", "/etc"), link("l", "x")].concat()),
        ("a file through a link", [link("d", "."), file("d/x")].concat()),
        ("a directory over a link", [link("d", "e"), entry("d", b'5', "", b"")].concat()),
        ("a hard link out", entry("h", b'1', "/etc/passwd", b"")),
        ("a hard link upwards", entry("h", b'1', "../../metadata.json", b"")),
        ("a hard link to a link", [link("l", "x"), entry("h", b'1', "l", b"")].concat()),
        ("a hard link to a later file", [entry("h", b'1', "f", b""), file("f")].concat()),
        ("a hard link to a file that was there", entry("h", b'1', "../metadata.json", b"")),
        ("a character device", entry("null", b'3', "", b"")),
        ("a block device", entry("disk", b'4', "", b"")),
        ("a fifo", entry("fifo", b'6', "", b"")),
        ("a type that is not known", entry("z", b'Z', "", b"")),
        ("a sparse file", entry("s", b'S', "", b"")),
        ("no name", file("")),
        ("contents of a directory", entry("d", b'5', "", b"x")),
        ("a wrong checksum", {
            let mut file = file("x");
            file[0] = b'y';
            file
        }),
        ("an early end", header("x", b'0', "", 5000)),
    ];
    let archive = |(what, bad): (&'static str, Vec<u8>)| {
        let archive = [file("fine"), bad, END.to_vec()].concat();
        (what, if what == "an early end" { archive[..1536].to_vec() } else { archive })
    };
    cases.into_iter().map(archive).collect()
}

pub fn unsafe_entries(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    let before = workspace.names();
    for (what, archive) in unsafe_archives() {
        assert_eq!(put(&workspace, &archive), (422, "archive.unsafe".to_owned()), "{what}");
        assert_eq!(workspace.names(), before, "{what}");
    }
    // Set-id bits, owners and devices of a safe archive are not taken over.
    let safe = [
        entry("f", b'0', "", b"x"),
        entry("d", b'5', "", b""),
        entry("h", b'1', "f", b""),
        END.to_vec(),
    ];
    assert_eq!(put(&workspace, &safe.concat()).0, 200);
    let found = workspace.sh("cd work/to; stat -c '%n %a %u %h' f h; stat -c '%n %a %u' d");
    assert_eq!(found, "f 777 10001 1\nh 777 10001 1\nd 777 10001\n");
    Ok(())
}

/// The gzip data of `bytes`; data can be joined to that of more.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .args(["-9", "-n", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = gzip.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(bytes).unwrap());
        let output = gzip.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    })
}

pub fn bombs(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace =
        client.create(&json!({"policy": {"max_disk_bytes": 16 * MIB}, "max_inodes": 20_000}));
    let before = workspace.names();
    let zeros = vec![0; MIB];
    let mebibyte = packed(&zeros);
    let file = packed(&entry("f", b'0', "", &zeros));
    let entries: Vec<u8> = (0..4096).flat_map(|n| header(&format!("{n}"), b'0', "", 0)).collect();
    let deep: Vec<u8> = (0..128)
        .flat_map(|n| {
            [extended("path", &format!("{n}/{}x", "d/".repeat(250))), header("x", b'0', "", 0)]
        })
        .flatten()
        .collect();
    let long = [extended("comment", &"x".repeat(60_000)), header("x", b'0', "", 0)].concat();
    let numbered = |first: usize| -> Vec<u8> {
        (0..1024).flat_map(|n| header(&format!("{}", first * 1024 + n), b'0', "", 0)).collect()
    };
    let bombs: Vec<(&str, Vec<u8>)> = vec![
        (
            "one file of 1 GiB",
            [packed(&header("f", b'0', "", 1 << 30)), mebibyte.repeat(1024)].concat(),
        ),
        ("files of 1 GiB", file.repeat(1024)),
        ("1 GiB after the end", [packed(&END), mebibyte.repeat(1024)].concat()),
        (
            "an extension of 1 GiB",
            [packed(&header("e", b'x', "", 1 << 30)), mebibyte.repeat(1024)].concat(),
        ),
        (
            "a long name of 1 GiB",
            [packed(&header("e", b'L', "", 1 << 30)), mebibyte.repeat(1024)].concat(),
        ),
        ("extensions of 1 GiB", packed(&long.repeat(16)).repeat(1024)),
        ("the same entries for 1 GiB", packed(&entries).repeat(512)),
        ("entries without number", (0..32).flat_map(|first| packed(&numbered(first))).collect()),
        ("deep paths", packed(&deep).repeat(16)),
    ];
    for (what, bomb) in bombs {
        let peak = target.own().ok().map(PeakMemory::begin);
        let (status, code) = put(&workspace, &[bomb, packed(&END)].concat());
        let is_refused = matches!(
            (status, code.as_str()),
            (413, "validation.too_large") | (422, "archive.unsafe") | (507, "workspace.disk_full")
        );
        assert!(is_refused, "{what}: {status} {code}");
        assert_eq!(workspace.names(), before, "{what}");
        if let Some(peak) = peak {
            peak.assert_grew_at_most(GROWTH_MIB);
        }
    }
    // A client that just sends more than fits.
    let peak = target.own().ok().map(PeakMemory::begin);
    let plain = [header("f", b'0', "", 1 << 30), vec![0; 192 * MIB]].concat();
    let (status, code) = put(&workspace, &plain);
    assert!(matches!(status, 413 | 422 | 507), "{status} {code}");
    if let Some(peak) = peak {
        peak.assert_grew_at_most(GROWTH_MIB);
    }
    Ok(())
}
