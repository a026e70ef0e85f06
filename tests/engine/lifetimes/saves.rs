//! Saves of workspaces that live on: when, how much, and what a full store leaves.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use super::PATIENCE;
use super::parked::{kept, park, status};
use crate::scene::{EngineScene, scene};

const MIB: u64 = 1 << 20;

fn save(scene: &EngineScene, workspace: &str) -> Value {
    let saved = scene.post(&format!("{workspace}/save"), &json!({}));
    assert_eq!(saved.status, 200, "{}", saved.json());
    saved.json()["saved_at"].clone()
}

/// The files below `directory` with their inodes and sizes.
fn files(directory: &Path) -> BTreeMap<PathBuf, (u64, u64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let (path, metadata) =
            entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
        if metadata.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path, (metadata.ino(), metadata.len()));
        }
    }
    found
}

#[test]
fn a_save_writes_only_files_that_changed() {
    // A larger workspace can be asked for.
    let mib = std::env::var("SAVED_MIB").map_or(64, |mib| mib.parse().unwrap());
    let Some(scene) = scene(&[("ENGINE_SAVE_EVERY", "1h")]) else { return };
    let policy = json!({"persist": true, "max_disk_bytes": (mib + 64) * MIB});
    let workspace = scene.create(&json!({"policy": policy, "limits": {"memory_mb": 2000}}));
    let write = "import os,sys
for i in range(int(sys.argv[1])):
    open(f'work/{i}','wb').write(os.urandom(1 << 20))";
    let run =
        json!({"cmd": "python3", "args": ["-c", write, mib.to_string()], "timeout_ms": 100_000});
    assert_eq!(scene.run(&workspace, &run)["exit_code"], 0);
    save(&scene, &workspace);
    let stored = scene.store().join("workspaces");
    let first = files(&stored);
    let whole: u64 = first.values().map(|(_, bytes)| bytes).sum();
    assert!(whole >= mib * MIB, "{whole}");
    for round in 0..3 {
        // At first the whole file, then a part of it, then nothing but a name.
        let script = [
            "head -c 1M /dev/urandom >work/3",
            "printf x | dd of=work/4 conv=notrunc bs=1 seek=5000 2>/dev/null",
            "mv work/5 work/other",
        ][round];
        let before = files(&stored);
        scene.sh(&workspace, script);
        let saved_at = save(&scene, &workspace);
        assert_eq!(scene.get(&workspace).json()["saved_at"], saved_at);
        let after = files(&stored);
        let new = after.iter().filter(|(path, facts)| before.get(*path) != Some(facts));
        let written: u64 = new.map(|(_, (_, bytes))| bytes).sum();
        assert!(written <= 4 * MIB, "{script}: {written} bytes");
        eprintln!("{mib} MiB, {script}: {written} bytes written");
        let now: u64 = after.values().map(|(_, bytes)| bytes).sum();
        assert!(now <= whole + MIB, "what is no longer needed is removed: {now}");
    }
    park(&scene, &workspace);
    let sum = "cat work/3 | wc -c; head -c 5001 work/4 | tail -c 1; ls work/other";
    assert_eq!(scene.sh(&workspace, sum), "1048576\nxwork/other\n");
}

#[test]
fn a_change_is_saved_soon_and_a_look_changes_nothing() {
    let Some(mut scene) = scene(&[("ENGINE_SAVE_EVERY", "300ms")]) else { return };
    let workspace = scene.create(&kept(&json!({})));
    let saved_at = |scene: &EngineScene| scene.get(&workspace).json()["saved_at"].clone();
    wait_until("the save of a new workspace", PATIENCE, || !saved_at(&scene).is_null());
    let mut last = saved_at(&scene);
    let file = format!("{workspace}/files?path=work/f");
    let changes: [&dyn Fn(); 4] = [
        &|| assert_eq!(scene.put(&file, b"1").status, 201),
        &|| assert_eq!(scene.sh(&workspace, "echo 2 >work/g"), ""),
        &|| {
            assert_eq!(
                scene.post(&format!("{workspace}/mkdir"), &json!({"path": "d"})).status,
                201
            );
        },
        &|| assert_eq!(scene.delete(&file).status, 204),
    ];
    for change in changes {
        change();
        wait_until("the save of a change", PATIENCE, || saved_at(&scene) != last);
        last = saved_at(&scene);
    }
    // A later change is saved, and the look before it was not.
    assert_eq!(scene.get(&format!("{workspace}/list?path=.")).status, 200);
    let other = scene.create(&kept(&json!({})));
    wait_until("the save of another", PATIENCE, || !scene.get(&other).json()["saved_at"].is_null());
    assert_eq!(saved_at(&scene), last);
    scene.kill_and_start();
    assert_eq!(saved_at(&scene), last);
    assert_eq!(scene.sh(&workspace, "cat work/g; ls -d d work/f || :"), "2\nd\n");
}

#[test]
fn a_program_that_runs_is_saved_with_its_files_and_goes_on() {
    let Some(mut scene) = scene(&[("ENGINE_SAVE_EVERY", "1h")]) else { return };
    let workspace = scene.create(&kept(&json!({})));
    let script = "echo begun >work/f; echo ready; read line; echo $line >>work/f; sleep 600";
    let body = json!({"cmd": "sh", "args": ["-c", script]});
    let session = scene.post(&format!("{workspace}/sessions"), &body).json();
    let session = format!("{workspace}/sessions/{}", session["session_id"].as_str().unwrap());
    scene.post(&format!("{session}/poll"), &json!({"wait_ms": 20_000}));
    save(&scene, &workspace);
    assert_eq!(
        scene.post(&format!("{session}/write"), &json!({"data": "more", "newline": true})).status,
        200
    );
    let file = format!("{workspace}/files?path=work/f");
    wait_until("the second line", PATIENCE, || scene.get(&file).body == b"begun\nmore\n");
    scene.kill_and_start();
    assert_eq!(scene.get(&file).body, b"begun\n", "as it was saved");
}

#[test]
fn a_full_store_keeps_the_save_before_and_the_workspace_lives_on() {
    let variables = [("ENGINE_STORE_MAX", "2MiB"), ("ENGINE_SAVE_EVERY", "1h")];
    let Some(mut scene) = scene(&variables) else { return };
    let workspace = scene.create(&kept(&json!({})));
    let file = format!("{workspace}/files?path=work/f");
    scene.sh(&workspace, "head -c 1M /dev/urandom >work/f");
    let saved_at = save(&scene, &workspace);
    let first = scene.get(&file).body;
    let stored = files(&scene.store().join("workspaces"));
    scene.sh(&workspace, "head -c 3M /dev/urandom >work/f");
    let second = scene.get(&file).body;
    scene.post(&format!("{workspace}/save"), &json!({})).assert_error(507, "store.full");
    scene.delete(&workspace).assert_error(507, "store.full");
    assert_eq!(status(&scene, &workspace), "active");
    assert!(scene.get(&file).body == second);
    assert_eq!(files(&scene.store().join("workspaces")), stored);
    let snapshot = scene.post(&format!("{workspace}/snapshot"), &json!({"persist": true}));
    snapshot.assert_error(507, "store.full");
    assert_eq!(scene.get("/v1/snapshots").json()["snapshots"], json!([]));
    scene.kill_and_start();
    assert_eq!(scene.get(&workspace).json()["saved_at"], saved_at);
    assert!(scene.get(&file).body == first);
    scene.sh(&workspace, "rm work/f");
    park(&scene, &workspace);
    assert_eq!(scene.delete(&format!("{workspace}?purge=true")).status, 200);
    let next = scene.create(&kept(&json!({})));
    scene.sh(&next, "head -c 1500k /dev/urandom >work/f");
    save(&scene, &next);
}
