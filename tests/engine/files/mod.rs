//! The files of a workspace over HTTP.

mod cli;
mod directories;
mod mounted;
mod outputs;
mod staging;

use serde_json::{Value, json};

use crate::exchange::ask;
use crate::scene::{EngineScene, scene};

fn put_files(scene: &EngineScene, workspace: &str, files: &Value) -> crate::exchange::Reply {
    scene.post(&format!("{workspace}/files"), &json!({"files": files}))
}

/// A tar archive of one entry with this name, type and contents.
pub fn tar(name: &str, kind: u8, target: &str, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0_u8; 512];
    let mut set = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    set(0, name.as_bytes());
    set(100, b"0004755\0");
    set(108, b"0000000\0");
    set(116, b"0000000\0");
    set(124, format!("{:011o}\0", content.len()).as_bytes());
    set(136, b"00000000000\0");
    set(148, b"        ");
    set(156, &[kind]);
    set(157, target.as_bytes());
    set(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let padding = content.len().next_multiple_of(512) - content.len();
    [header, content.to_vec(), vec![0; padding + 1024]].concat()
}

#[test]
fn files_are_written_for_programs_and_read_back() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"path": "/data/agent"}));
    let files = json!([
        {"path": "work/a.txt", "content": "héllo"},
        {"path": "/data/agent/bin/run", "content": "#!/bin/sh\necho ran\n", "mode": 493},
        {"path": "/tmp/x", "content": "/+A=", "encoding": "base64"},
        {"path": "/workspace/empty"},
    ]);
    let written = put_files(&scene, &workspace, &files);
    assert_eq!((written.status, written.json()), (200, json!({"written": 4})));
    let listing = "cat work/a.txt; bin/run; od -An -tx1 /tmp/x; stat -c '%a %u' work/a.txt empty";
    assert_eq!(scene.sh(&workspace, listing), "hélloran\n ff e0\n644 10001\n644 10001\n");
    let whole = scene.get(&format!("{workspace}/files?path=work/a.txt"));
    assert_eq!((whole.status, whole.body.as_slice()), (200, "héllo".as_bytes()));
    let etag = whole.header("etag").unwrap().to_owned();
    let target = format!("{workspace}/files?path=work/a.txt");
    let part = ask(&scene.service, "GET", &target, "range: bytes=0-0\r\n", b"");
    assert_eq!((part.status, part.body.as_slice()), (206, &b"h"[..]));
    let known = ask(&scene.service, "GET", &target, &format!("if-none-match: {etag}\r\n"), b"");
    assert_eq!(known.status, 304);
    scene.sh(&workspace, "echo other >work/a.txt");
    let changed = ask(&scene.service, "GET", &target, &format!("if-none-match: {etag}\r\n"), b"");
    assert_eq!((changed.status, changed.body.as_slice()), (200, &b"other\n"[..]));
}

#[test]
fn a_query_may_be_encoded_as_a_form() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let put = scene.put(&format!("{workspace}/files?path=work/a+b%2Bc+%C3%A9.txt"), b"x");
    assert_eq!((put.status, &put.json()["path"]), (201, &json!("work/a b+c é.txt")));
    for target in ["files?path=work%2Fa%20b%2Bc%20é.txt", "stat?path=work%2Fa+b%2Bc+%C3%A9.txt"] {
        let target = target.replace('é', "%C3%A9");
        assert_eq!(scene.get(&format!("{workspace}/{target}")).status, 200, "{target}");
    }
}

#[test]
fn all_files_are_written_or_none() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    for (bad, path) in [
        (json!({"path": "../x"}), "files[1].path"),
        (json!({"path": ""}), "files[1].path"),
        (json!({"path": "/etc/x"}), "files[1].path"),
    ] {
        let reply = put_files(&scene, &workspace, &json!([{"path": "a", "content": "x"}, bad]));
        let error = reply.assert_error(422, "validation.path_escape");
        assert_eq!(error["details"]["path"], path);
    }
    for (bad, path) in [
        (json!({"path": "b", "mode": 2541}), "files[1].mode"),
        (json!({"path": "b", "content": "?", "encoding": "base64"}), "files[1].content"),
        (json!({"path": "b", "owner": 0}), "files[1].owner"),
    ] {
        let reply = put_files(&scene, &workspace, &json!([{"path": "a", "content": "x"}, bad]));
        let error = reply.assert_error(422, "validation.invalid_request");
        assert_eq!(error["details"]["path"], path);
    }
    scene.get(&format!("{workspace}/stat?path=a")).assert_error(404, "file.not_found");
}

#[test]
fn a_put_replaces_a_file_whole_or_not_at_all() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"policy": {"max_disk_bytes": 1 << 20}}));
    let target = format!("{workspace}/files?path=d/f&mode=0750");
    let made = scene.put(&target, b"one");
    assert_eq!((made.status, &made.json()["mode"]), (201, &json!("0750")));
    assert_eq!(scene.put(&target, b"two").status, 200);
    scene.put(&target, &vec![7; 2 << 20]).assert_error(507, "workspace.disk_full");
    assert_eq!(scene.get(&format!("{workspace}/files?path=d/f")).body, b"two");
    let wrong = scene.put(&format!("{workspace}/files?path=f&mode=9"), b"");
    wrong.assert_error(422, "validation.invalid_request");
    scene.put(&format!("{workspace}/files"), b"").assert_error(422, "validation.invalid_request");
    // Without a length, as curl sends from a pipe.
    let mut client = scene.service.connect();
    let chunked = client.ask(format!(
        "PUT {workspace}/files?path=c HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n\
         3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    ));
    assert_eq!(chunked.status, 201, "{chunked:?}");
    assert_eq!(scene.get(&format!("{workspace}/files?path=c")).body, b"abcde");
}

#[test]
fn links_and_special_files_of_programs_lead_nowhere() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    scene.sh(
        &workspace,
        "ln -s /etc etc; ln -s /etc/passwd passwd; mkfifo fifo; mkdir d; echo in >d/f; \
         ln -s d inside; ln -s ../../../../proc/self/root/etc up",
    );
    let file = |path: &str| format!("{workspace}/files?path={path}");
    for path in ["etc/passwd", "passwd", "up/passwd"] {
        scene.get(&file(path)).assert_error(409, "file.through_link");
    }
    for path in ["etc/new", "up/new", "inside/new"] {
        scene.put(&file(path), b"x").assert_error(409, "file.through_link");
    }
    scene.get(&file("fifo")).assert_error(409, "file.not_regular");
    scene.get(&file("d")).assert_error(409, "file.not_regular");
    assert_eq!(scene.get(&file("inside/f")).body, b"in\n");
    // A final link is replaced.
    assert_eq!(scene.put(&file("passwd"), b"mine").status, 200);
    assert_eq!(scene.get(&file("passwd")).body, b"mine");
    let link = scene.get(&format!("{workspace}/stat?path=etc")).json();
    assert_eq!((&link["type"], &link["target"]), (&json!("link"), &json!("/etc")));
}

#[test]
fn directories_are_listed_made_moved_and_removed() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let post = |door: &str, body: Value| scene.post(&format!("{workspace}/{door}"), &body);
    assert_eq!(post("mkdir", json!({"path": "a/b", "mode": 448})).json()["mode"], "0700");
    post("mkdir", json!({"path": "a/b"})).assert_error(409, "file.exists");
    put_files(
        &scene,
        &workspace,
        &json!([{"path": "a/f", "content": "1"}, {"path": "g", "content": "22"}]),
    );
    let first = scene.get(&format!("{workspace}/list?path=a&depth=9&limit=1")).json();
    assert_eq!(first["entries"][0]["path"], "a/b");
    let cursor = first["next_cursor"].as_str().unwrap();
    let second =
        scene.get(&format!("{workspace}/list?path=a&depth=9&limit=1&cursor={cursor}")).json();
    assert_eq!(
        (&second["entries"][0]["path"], &second["next_cursor"]),
        (&json!("a/f"), &Value::Null)
    );
    let top = scene.get(&format!("{workspace}/list")).json();
    let names: Vec<&str> =
        top["entries"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "g", "metadata.json", "out", "runs", "skills", "work"]);
    post("move", json!({"from": "g", "to": "a/f"})).assert_error(409, "file.exists");
    let moved = post("move", json!({"from": "g", "to": "a/f", "overwrite": true}));
    assert_eq!((moved.status, &moved.json()["bytes"]), (200, &json!(2)));
    post("move", json!({"from": "g", "to": "h"})).assert_error(404, "file.not_found");
    let file = format!("{workspace}/files?path=a");
    scene.delete(&file).assert_error(409, "file.not_empty");
    assert_eq!(scene.delete(&format!("{file}&recursive=true")).status, 204);
    scene.delete(&file).assert_error(404, "file.not_found");
}

#[test]
fn the_digest_is_that_of_the_seed() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let files =
        json!([{"path": "t/a/b/x.txt", "content": "one"}, {"path": "t/a/c.txt", "content": "two"}]);
    put_files(&scene, &workspace, &files);
    scene.sh(&workspace, "ln -s a/c.txt t/link");
    let digest = scene.get(&format!("{workspace}/digest?path=t")).json();
    let expected = "d5eed389030d3cf3ca8173debfe3cf5ff3d1b861c1c6a7367b907e082b67f243";
    assert_eq!(digest, json!({"digest": expected, "files": 2}));
}

#[test]
fn an_archive_goes_both_ways_and_an_unsafe_one_writes_nothing() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    put_files(
        &scene,
        &workspace,
        &json!([{"path": "t/a", "content": "1"}, {"path": "t/b/c", "content": "2"}]),
    );
    let packed = scene.get(&format!("{workspace}/tar?path=t"));
    assert_eq!((packed.status, packed.header("content-type")), (200, Some("application/x-tar")));
    scene.get(&format!("{workspace}/tar?path=none")).assert_error(404, "file.not_found");
    // The body is sent in chunks; the program has its own way to read it.
    let target = format!("{workspace}/tar?path=copy");
    assert_eq!(scene.put(&target, &tar("d/f", b'0', "", b"new")).json(), json!({"written": 1}));
    assert_eq!(scene.sh(&workspace, "cat copy/d/f; stat -c %a copy/d/f"), "new755\n");
    for (archive, what) in [
        (tar("../out", b'0', "", b"x"), "a path that leaves"),
        (tar("/abs", b'0', "", b"x"), "an absolute path"),
        (tar("link", b'2', "/etc/passwd", b""), "a link that leaves"),
        (tar("fifo", b'6', "", b""), "a fifo"),
        (tar("dev", b'3', "", b""), "a device"),
    ] {
        let both = [tar("fine", b'0', "", b"x")[..1024].to_vec(), archive].concat();
        let reply = scene.put(&target, &both);
        assert_eq!(reply.status, 422, "{what}: {}", reply.json());
        reply.assert_error(422, "archive.unsafe");
        scene.get(&format!("{workspace}/stat?path=copy/fine")).assert_error(404, "file.not_found");
    }
}

#[test]
fn files_that_programs_made_are_collected_with_their_contents() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    scene.sh(&workspace, "echo text >out/a.txt; printf '\\377\\340' >out/b; mkdir out/d; echo 1 >out/d/c; ln -s /etc/passwd out/e");
    let collect = |patterns: Value| {
        scene.post(&format!("{workspace}/collect"), &json!({"patterns": patterns}))
    };
    let collected = collect(json!(["$OUTPUT_DIR/**", "out/a.txt"])).json();
    assert_eq!(collected["limits_hit"], false);
    let files = collected["files"].as_array().unwrap();
    let names: Vec<&str> = files.iter().map(|file| file["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["out/a.txt", "out/b", "out/d/c"]);
    assert_eq!((&files[0]["content"], &files[0]["size_bytes"]), (&json!("text\n"), &json!(5)));
    assert_eq!((&files[1]["content"], &files[1]["encoding"]), (&json!("/+A="), &json!("base64")));
    collect(json!(["../x"])).assert_error(422, "validation.path_escape");
    collect(json!("out/*")).assert_error(422, "validation.invalid_request");
}

#[test]
fn metadata_of_a_program_counts_if_it_parses() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let metadata = || scene.get(&format!("{workspace}/metadata")).json();
    assert_eq!((&metadata()["version"], &metadata()["skills"]), (&json!(1), &json!({})));
    scene.sh(&workspace, "echo '{\"version\": 7, \"mine\": true}' >metadata.json");
    assert_eq!((&metadata()["version"], &metadata()["mine"]), (&json!(7), &json!(true)));
    for plant in [
        "echo '{' >metadata.json",
        "rm metadata.json; ln -s /etc/passwd metadata.json",
        "rm metadata.json; mkfifo metadata.json",
    ] {
        scene.sh(&workspace, plant);
        assert_eq!(metadata()["version"], 1, "{plant}");
    }
}
