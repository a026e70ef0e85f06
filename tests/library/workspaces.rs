//! Workspaces and their files.

use std::thread;

use cofferdam::engine::{
    CreateRequest, Engine, EngineCode, WorkspaceFs, WorkspaceManager, WorkspacePolicy,
    WorkspaceRegistry, new_workspace_registry,
};

use crate::bench::{bench, file};

#[test]
fn files_of_any_bytes_are_put_and_collected_as_they_are() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let files = vec![
        file("work/text", "é\n", 0),
        file("work/bytes", *b"\xFF\0\xFE", 0),
        file("work/run.sh", "#!/bin/sh\necho ran\n", 0o755),
    ];
    bench.engine.put_files(&workspace, files).unwrap();
    assert_eq!(bench.sh(&workspace, "work/run.sh; stat -c %a work/text"), "ran\n644\n");
    assert_eq!(bench.sh(&workspace, "od -An -tx1 work/bytes"), " ff 00 fe\n");
    let collected = bench.engine.collect(&workspace, &["$WORK_DIR/**".to_owned()]).unwrap();
    let found: Vec<_> = collected.files.iter().map(|file| (&*file.name, &*file.content)).collect();
    let run = ("work/run.sh", "#!/bin/sh\necho ran\n");
    assert_eq!(found, [("work/bytes", "/wD+"), run, ("work/text", "é\n")]);
    assert!(!collected.limits_hit);
}

#[test]
fn no_file_is_written_if_one_path_leaves_the_workspace() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    let files = vec![file("work/a", "a", 0), file("../b", "b", 0)];
    let error = bench.engine.put_files(&workspace, files).unwrap_err();
    assert_eq!(error.code, EngineCode::PathEscape);
    assert_eq!(bench.sh(&workspace, "ls work"), "");
    let error = bench.engine.collect(&workspace, &["../*".to_owned()]).unwrap_err();
    assert_eq!(error.code, EngineCode::PathEscape);
}

#[test]
fn a_workspace_holds_no_more_than_its_policy_says() {
    let Some(bench) = bench() else { return };
    let policy = |bytes| WorkspacePolicy { max_disk_bytes: Some(bytes), ..Default::default() };
    let workspace = bench.engine.create_workspace("small", policy(1 << 20)).unwrap();
    let error = bench.engine.put_files(&workspace, vec![file("a", vec![b'a'; 2 << 20], 0)]);
    assert_eq!(error.unwrap_err().code, EngineCode::WorkspaceDiskFull);
    let script = "head -c 2097152 /dev/zero > b || stat -c %s b";
    let bytes: u64 = bench.sh(&workspace, script).trim().parse().unwrap();
    assert!(bytes <= 1 << 20, "{bytes}");
    let most = bench.engine.describe().max_disk_bytes;
    let error = bench.engine.create_workspace("large", policy(most + 1)).unwrap_err();
    assert_eq!(error.details["path"], "policy.max_disk_bytes");
}

#[test]
fn a_workspace_is_shown_where_its_request_says() {
    let Some(bench) = bench() else { return };
    let path = Some("/srv/agent".to_owned());
    let workspace = bench.engine.create(CreateRequest { path, ..Default::default() }).unwrap();
    assert_eq!(workspace.path.to_str(), Some("/srv/agent"));
    assert_eq!(bench.sh(&workspace, "pwd; echo $WORK_DIR"), "/srv/agent\n/srv/agent/work\n");
}

#[test]
fn a_registry_makes_one_workspace_of_a_label_whoever_asks() {
    let Some(bench) = bench() else { return };
    let registry = new_workspace_registry();
    let acquire = || registry.acquire(bench.engine.manager(), "label").unwrap();
    let found: Vec<_> = thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(acquire)).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    bench.engine.cleanup(&found[0]).unwrap();
    assert_ne!(acquire(), found[0], "one that has ended is not found again");
    let known = acquire();
    let another = bench.engine.create_workspace("label", WorkspacePolicy::default()).unwrap();
    assert_ne!(another, known, "a create makes one, whatever its label");
    let too_much = WorkspacePolicy { max_disk_bytes: Some(u64::MAX), ..Default::default() };
    let failing = WorkspaceRegistry::with_policy(too_much);
    assert!(failing.acquire(&bench.engine, "other").is_err());
    assert!(registry.acquire(&bench.engine, "other").is_ok(), "a failure is not remembered");
}

#[test]
fn a_workspace_that_was_cleaned_up_is_gone() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    bench.engine.cleanup(&workspace).unwrap();
    let gone = EngineCode::WorkspaceNotFound;
    assert_eq!(bench.engine.cleanup(&workspace).unwrap_err().code, gone);
    assert_eq!(bench.engine.put_files(&workspace, Vec::new()).unwrap_err().code, gone);
}

#[test]
fn nothing_is_on_disk_before_it_is_needed() {
    let Some(bench) = bench() else { return };
    let workspace = bench.workspace();
    bench.sh(&workspace, "echo a > a");
    assert!(!bench.store().exists());
}
