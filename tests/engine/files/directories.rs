//! `POST W/stage-directory` and `PUT /v1/skills/{digest}`.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::tempdir;

use super::staging::HostPlace;
use super::tar;
use crate::exchange::{Reply, ask, command_line, engine_server};
use crate::scene::{EngineScene, scene};

pub fn stage(scene: &EngineScene, workspace: &str, body: &Value) -> Reply {
    scene.post(&format!("{workspace}/stage-directory"), body)
}

/// Sends an archive to be staged.
pub fn send(scene: &EngineScene, workspace: &str, query: &str, archive: &[u8]) -> Reply {
    let target = format!("{workspace}/stage-directory?{query}");
    ask(&scene.service, "POST", &target, "content-type: application/x-tar\r\n", archive)
}

/// An archive of whole entries.
pub fn archive(entries: &[(&str, u8, &str, &[u8])]) -> Vec<u8> {
    let entries = entries.iter().map(|(name, kind, target, content)| {
        let mut entry = tar(name, *kind, target, content);
        entry.truncate(entry.len() - 1024);
        entry
    });
    let mut bytes = entries.collect::<Vec<_>>().concat();
    bytes.extend([0; 1024]);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut child =
        Command::new("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[test]
fn a_directory_of_the_host_replaces_what_was_there_and_has_the_digest_of_the_helper() {
    let host = HostPlace::new();
    let Some(scene) = scene(&host.roots()) else { return };
    let workspace = scene.create(&json!({}));
    scene.sh(&workspace, "mkdir skills/pdf; echo old >skills/pdf/old");
    let body = json!({"src": host.input("tree"), "to": "skills/pdf", "allow_mount": true});
    let staged = stage(&scene, &workspace, &body);
    let root = json!({"root": host.path.join("tree")}).to_string();
    let helper = command_line(&["helper", "dir_digest"], root.as_bytes(), &[]);
    let helper: Value = serde_json::from_slice(&helper.stdout).unwrap();
    let expected = json!({"to": "skills/pdf", "digest": helper["digest"], "files": helper["files"],
                          "mount_used": false});
    assert_eq!((staged.status, staged.json()), (200, expected));
    let digest = scene.get(&format!("{workspace}/digest?path=skills/pdf")).json();
    assert_eq!(digest["digest"], helper["digest"]);
    let seen = scene.sh(&workspace, "cd skills/pdf; find . | sort; cat inner/link; echo x >a");
    assert_eq!(seen, ".\n./a\n./inner\n./inner/b\n./inner/link\na");
    let skill = scene.get(&format!("{workspace}/metadata")).json()["skills"]["pdf"].clone();
    assert_eq!(
        (&skill["name"], &skill["rel_path"], &skill["digest"], &skill["mounted"]),
        (&json!("pdf"), &json!("skills/pdf"), &helper["digest"], &json!(false))
    );
    assert!(skill["staged_at"].as_str().unwrap().ends_with('Z'));
    for (body, status, code) in [
        (json!({"to": "x"}), 422, "validation.invalid_request"),
        (json!({"src": host.input("tree")}), 422, "validation.invalid_request"),
        (
            json!({"src": host.input("tree"), "digest": "0".repeat(64), "to": "x"}),
            422,
            "validation.invalid_request",
        ),
        (json!({"src": "workspace://work", "to": "x"}), 422, "input.unsupported"),
        (json!({"src": host.input("none"), "to": "x"}), 404, "input.not_found"),
        (json!({"src": host.input("linked"), "to": "x"}), 403, "input.host_denied"),
        (json!({"src": "host:///etc", "to": "x"}), 403, "input.host_denied"),
        (json!({"src": host.input("file.txt"), "to": "x"}), 409, "file.not_regular"),
        (json!({"src": host.input("tree"), "to": "."}), 422, "validation.invalid_request"),
        (json!({"src": host.input("tree"), "to": "../x"}), 422, "validation.path_escape"),
        (json!({"digest": "0".repeat(64), "to": "x"}), 404, "skill.not_found"),
        (json!({"digest": "x", "to": "x"}), 422, "validation.invalid_request"),
    ] {
        let reply = stage(&scene, &workspace, &body);
        assert_eq!(reply.status, status, "{body}: {}", reply.json());
        reply.assert_error(status, code);
    }
    scene.get(&format!("{workspace}/stat?path=x")).assert_error(404, "file.not_found");
    // A link that leads out of the tree.
    std::os::unix::fs::symlink("../file.txt", host.path.join("tree/out")).unwrap();
    let body = json!({"src": host.input("tree"), "to": "skills/pdf"});
    stage(&scene, &workspace, &body).assert_error(409, "file.through_link");
    assert_eq!(scene.sh(&workspace, "cat skills/pdf/a"), "x\n");
}

#[test]
fn a_program_cannot_change_a_read_only_tree() {
    let host = HostPlace::new();
    let Some(scene) = scene(&host.roots()) else { return };
    let workspace = scene.create(&json!({}));
    let body = json!({"src": host.input("tree"), "to": "skills/pdf", "read_only": true, "allow_mount": true});
    let staged = stage(&scene, &workspace, &body);
    assert_eq!((staged.status, &staged.json()["mount_used"]), (200, &json!(true)));
    let digest = staged.json()["digest"].clone();
    // What fails is counted; the parent's owner may move the name.
    let attempts = "\
        n=0; t() { if \"$@\" 2>/dev/null; then echo \"worked: $*\"; else n=$((n+1)); fi; }
        attack() {
          t chmod u+w $1/a; t chmod u+w $1; t chmod -R 777 $1; t chown 10001 $1/a
          t sh -c \"echo x >$1/a\"; t sh -c \"echo x >>$1/inner/b\"; t sh -c \"echo x >$1/new\"
          t rm -f $1/a; t rm -rf $1/inner/b; t mv $1/a $1/z; t mkdir $1/d; t ln -s x $1/l; t touch $1/a
          t truncate -s 0 $1/a; t ln $1/a work/hard
        }
        attack skills/pdf
        mv skills skills2; mkdir skills; attack skills2/pdf
        mv skills2/pdf skills2/moved; attack skills2/moved; mv skills2/moved skills2/pdf
        rmdir skills; mv skills2 skills
        attack skills/pdf
        python3 - <<'PY' 2>/dev/null || n=$((n+1))
import os
fd = os.open('skills/pdf/a', os.O_RDONLY); os.fchmod(fd, 0o777)
PY
        echo $n; stat -c '%a %n' skills/pdf skills/pdf/a";
    let seen = scene.sh(&workspace, attempts);
    assert!(!seen.contains("worked: "), "{seen}");
    // Four times 15, and the one of Python.
    assert_eq!(seen, "61\n555 skills/pdf\n444 skills/pdf/a\n");
    let after = scene.get(&format!("{workspace}/digest?path=skills/pdf")).json();
    assert_eq!(after["digest"], digest);
    for (method, target) in [
        ("PUT", "files?path=skills/pdf/a"),
        ("PUT", "files?path=skills/pdf/new"),
        ("PUT", "files?path=skills/pdf/d/new"),
    ] {
        let reply = ask(&scene.service, method, &format!("{workspace}/{target}"), "", b"x");
        reply.assert_error(409, "file.read_only");
    }
    assert_eq!(scene.get(&format!("{workspace}/files?path=skills/pdf/a")).body, b"a");
    // A fork has it as it is; staging again replaces it.
    let fork = scene.post(&format!("{workspace}/fork"), &json!({})).json();
    let fork = format!("/v1/workspaces/{}", fork["workspace_id"].as_str().unwrap());
    assert_eq!(scene.sh(&fork, "cat skills/pdf/a; ! chmod u+w skills/pdf/a 2>/dev/null"), "a");
    for workspace in [&workspace, &fork] {
        let body = json!({"src": host.input("tree"), "to": "skills/pdf"});
        assert_eq!(stage(&scene, workspace, &body).json()["digest"], digest);
        assert_eq!(scene.sh(workspace, "echo mine >skills/pdf/a; cat skills/pdf/a"), "mine\n");
    }
}

#[test]
fn an_archive_is_staged_whole_or_not_at_all() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"policy": {"max_disk_bytes": 1 << 20}}));
    let whole = archive(&[
        ("a/b/x.txt", b'0', "", b"one"),
        ("a/c.txt", b'0', "", b"two"),
        ("link", b'2', "a/c.txt", b""),
    ]);
    let known = "d5eed389030d3cf3ca8173debfe3cf5ff3d1b861c1c6a7367b907e082b67f243";
    for (query, bytes) in
        [("to=skills/t&read_only=true", whole.clone()), ("to=skills/t&allow_mount=1", gzip(&whole))]
    {
        let staged = send(&scene, &workspace, query, &bytes);
        let expected = json!({"to": "skills/t", "digest": known, "files": 2, "mount_used": false});
        assert_eq!((staged.status, staged.json()), (200, expected), "{query}");
        assert_eq!(scene.sh(&workspace, "cat skills/t/link; ls -A skills"), "twot\n");
    }
    let big = vec![7; 2 << 20];
    for (query, bytes, status, code) in [
        (
            "to=skills/t",
            archive(&[("ok", b'0', "", b"x"), ("../x", b'0', "", b"x")]),
            422,
            "archive.unsafe",
        ),
        (
            "to=skills/t",
            archive(&[("ok", b'0', "", b"x"), ("l", b'2', "../../work", b"")]),
            422,
            "archive.unsafe",
        ),
        (
            "to=skills/t",
            archive(&[("ok", b'0', "", b"x"), ("f", b'6', "", b"")]),
            422,
            "archive.unsafe",
        ),
        ("to=skills/t", b"no archive".to_vec(), 422, "archive.unsafe"),
        ("to=skills/t", archive(&[("big", b'0', "", &big)]), 507, "workspace.disk_full"),
        ("to=../t", whole.clone(), 422, "validation.path_escape"),
        ("to=metadata.json", whole.clone(), 422, "validation.invalid_request"),
        ("", whole.clone(), 422, "validation.invalid_request"),
        ("to=skills/t&read_only=x", whole.clone(), 422, "validation.invalid_request"),
        ("to=skills/t&digest=0", whole.clone(), 422, "validation.invalid_request"),
    ] {
        let reply = send(&scene, &workspace, query, &bytes);
        assert_eq!(reply.status, status, "{query}: {}", reply.json());
        reply.assert_error(status, code);
        assert_eq!(
            scene.sh(&workspace, "cat skills/t/link; ls -A skills skills/t"),
            "twoskills:\nt\n\nskills/t:\na\nlink\n"
        );
    }
}

#[test]
fn an_archive_needs_no_media_type_and_one_that_is_too_large_finds_the_disk_full() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({"policy": {"max_disk_bytes": 1 << 20}}));
    let small = archive(&[("a", b'0', "", b"one")]);
    let target = format!("{workspace}/stage-directory?to=work/t");
    for headers in ["", "content-type: application/x-www-form-urlencoded\r\n"] {
        let staged = ask(&scene.service, "POST", &target, headers, &small);
        assert_eq!((staged.status, &staged.json()["to"]), (200, &json!("work/t")), "{headers}");
    }
    let json_type = "content-type: application/json\r\n";
    let body = json!({"src": "host:///x", "to": "y"}).to_string();
    let refused = ask(&scene.service, "POST", &target, json_type, body.as_bytes());
    let error = refused.assert_error(422, "validation.invalid_request");
    assert_eq!(error["details"]["path"], "to");
    let large = gzip(&archive(&[("big", b'0', "", &[7; 2 << 20])]));
    scene.put(&format!("{workspace}/tar?path=x"), &large).assert_error(507, "workspace.disk_full");
    scene.get(&format!("{workspace}/stat?path=x/big")).assert_error(404, "file.not_found");
}

#[test]
fn a_skill_is_stored_once_by_its_digest_and_survives_a_restart() {
    let Some(_) = scene(&[]) else { return };
    let directory = tempdir().unwrap();
    let store = directory.path().join("engine");
    let files = archive(&[("a/b/x.txt", b'0', "", b"one"), ("a/c.txt", b'0', "", b"two")]);
    let known = "d5eed389030d3cf3ca8173debfe3cf5ff3d1b861c1c6a7367b907e082b67f243";
    let setup = || engine_server(&store).env("JOBS", "off").env("ENGINE_STORE_MAX", "64KiB");
    let mut service = setup().start();
    let put = |service: &_, digest: &str, bytes: &[u8]| {
        ask(service, "PUT", &format!("/v1/skills/{digest}"), "", bytes)
    };
    let expected = json!({"digest": known, "files": 2});
    let first = put(&service, known, &files);
    assert_eq!((first.status, first.json()), (201, expected.clone()));
    for again in [files.clone(), gzip(&files)] {
        let reply = put(&service, known, &again);
        assert_eq!((reply.status, reply.json()), (200, expected.clone()));
    }
    let other = "0".repeat(64);
    let mismatch = put(&service, &other, &files).assert_error(422, "skill.digest_mismatch");
    assert_eq!(mismatch["details"]["digest"], known);
    let bad = archive(&[("ok", b'0', "", b"x"), ("../x", b'0', "", b"x")]);
    put(&service, known, &bad).assert_error(422, "archive.unsafe");
    put(&service, "x", &files).assert_error(422, "validation.invalid_request");
    let big = archive(&[("big", b'0', "", &[7; 64 << 10])]);
    put(&service, &other, &big).assert_error(507, "store.full");
    for round in 0..2 {
        if round == 1 {
            drop(service);
            service = setup().start();
        }
        let made = ask(&service, "POST", "/v1/workspaces", "", b"{}").json();
        let id = made["workspace_id"].as_str().unwrap();
        let target = format!("/v1/workspaces/{id}/stage-directory");
        let body =
            json!({"digest": known, "to": "skills/s", "read_only": true, "allow_mount": true});
        let staged = ask(&service, "POST", &target, "", body.to_string().as_bytes());
        let expected = json!({"to": "skills/s", "digest": known, "files": 2, "mount_used": true});
        assert_eq!((staged.status, staged.json()), (200, expected), "round {round}");
        let file = ask(
            &service,
            "GET",
            &format!("/v1/workspaces/{id}/files?path=skills/s/a/c.txt"),
            "",
            b"",
        );
        assert_eq!(file.body, b"two");
        let body = json!({"digest": other, "to": "skills/s"}).to_string();
        ask(&service, "POST", &target, "", body.as_bytes()).assert_error(404, "skill.not_found");
    }
    let names = std::fs::read_dir(store.join("skills")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [known]);
    assert_eq!(std::fs::read_dir(store.join("skills-incoming")).unwrap().count(), 0);
}
