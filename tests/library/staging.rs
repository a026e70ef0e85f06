//! Inputs and outputs of workspaces.

use std::fs;

use cofferdam::engine::{
    ArtifactSession, CreateRequest, EngineCode, InputSpec, OutputSpec, StageOptions, WorkspaceFs,
    load_artifact_helper, save_artifact_helper,
};
use tempfile::tempdir;

use crate::bench::{bench, bench_with};

fn input(from: &str, to: &str) -> InputSpec {
    InputSpec { from: from.to_owned(), to: Some(to.to_owned()), ..InputSpec::default() }
}

#[test]
fn a_directory_of_the_host_is_staged_if_its_root_is_allowed() {
    let root = tempdir().unwrap();
    // A root has no link on its way.
    let root = fs::canonicalize(root.path()).unwrap();
    fs::create_dir_all(root.join("skill/deep")).unwrap();
    fs::write(root.join("skill/deep/file"), "staged").unwrap();
    let Some(bench) = bench_with(|builder| builder.host_roots([&root])) else { return };
    let workspace = bench.workspace();
    let src = root.join("skill");
    let stage = |src: &str, read_only| {
        let options = StageOptions { read_only, ..StageOptions::default() };
        bench.engine.stage_directory(&workspace, src, "skills/one", options)
    };
    let staged = stage(src.to_str().unwrap(), true).unwrap();
    assert_eq!((&*staged.to, staged.files, staged.mount_used), ("skills/one", 1, false));
    assert_eq!(bench.sh(&workspace, "cat skills/one/deep/file"), "staged");
    assert_eq!(
        bench.sh(&workspace, "! echo x 2>&- > skills/one/deep/file; echo refused"),
        "refused\n"
    );
    let options = StageOptions { read_only: true, allow_mount: true };
    let src_path = src.to_str().unwrap();
    let mounted =
        bench.engine.stage_directory(&workspace, src_path, "skills/two", options).unwrap();
    assert_eq!((mounted.mount_used, &mounted.digest), (true, &staged.digest));
    assert_eq!(bench.sh(&workspace, "cat skills/two/deep/file"), "staged");
    assert_eq!(stage("/etc", false).unwrap_err().code, EngineCode::InputHostDenied);
    let missing = root.join("missing");
    let error = stage(missing.to_str().unwrap(), false).unwrap_err();
    assert_eq!(error.code, EngineCode::InputNotFound);
    assert_eq!(bench.sh(&workspace, "cat skills/one/deep/file"), "staged", "it stays");
}

#[test]
fn outputs_become_artifacts_that_the_next_workspace_takes_as_inputs() {
    let Some(bench) = bench() else { return };
    let session = ArtifactSession { app: "app".to_owned(), ..ArtifactSession::default() };
    let create = || {
        let artifact_session = Some(session.clone());
        let request = CreateRequest { artifact_session, ..CreateRequest::default() };
        bench.engine.create(request).unwrap()
    };
    let (first, second) = (create(), create());
    bench.sh(&first, "printf one > out/a.txt; ln -s /etc/passwd out/b.txt");
    let spec =
        OutputSpec { globs: vec!["out/*.txt".to_owned()], save: true, ..OutputSpec::default() };
    let manifest = bench.engine.collect_outputs(&first, &spec).unwrap();
    assert_eq!((manifest.files.len(), manifest.omitted.len()), (1, 1), "{manifest:?}");
    let saved = &manifest.files[0];
    let name = saved.saved_as.as_deref().unwrap();
    assert_eq!((saved.version, saved.size_bytes, &*saved.content), (Some(0), 3, ""));
    let context = bench.engine.artifact_context(&session).unwrap();
    assert_eq!(load_artifact_helper(&context, name, None).unwrap().data, b"one");
    assert_eq!(save_artifact_helper(&context, name, b"two", "text/plain").unwrap(), 1);

    let inputs = vec![
        input(&format!("artifact://{name}"), "work/newest"),
        input(&format!("artifact://{name}@0"), "work/first"),
        input("workspace://metadata.json", "work/copy"),
    ];
    let staged = bench.engine.stage_inputs(&second, inputs).unwrap();
    assert_eq!((staged[0].version, staged[1].version), (Some(1), Some(0)));
    assert_eq!(bench.sh(&second, "cat work/newest work/first"), "twoone");
    let both = vec![input("workspace://work/first", "work/x"), input("nowhere://x", "work/y")];
    let error = bench.engine.stage_inputs(&second, both).unwrap_err();
    assert_eq!(error.code, EngineCode::InputUnsupported);
    assert_eq!(bench.sh(&second, "ls work"), "copy\nfirst\nnewest\n", "all or none");
    let other = bench.engine.artifact_context(&ArtifactSession::default()).unwrap();
    let error = load_artifact_helper(&other, name, None).unwrap_err();
    assert_eq!(error.code, EngineCode::ArtifactNotFound);
}
