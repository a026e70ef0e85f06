//! `POST W/stage`: inputs from artifacts, the host, the workspace and its skills.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::exchange::{Reply, ask};
use crate::scene::{EngineScene, bearer, scene, scene_with_tokens};

/// A directory of the host that inputs may be in, with a file, a directory, a fifo, and links.
pub struct HostPlace {
    _directory: TempDir,
    pub path: PathBuf,
}

impl HostPlace {
    pub fn new() -> Self {
        let directory = tempdir().unwrap();
        let place = directory.path().canonicalize().unwrap();
        let path = place.join("root");
        fs::create_dir_all(path.join("tree/inner")).unwrap();
        fs::write(path.join("file.txt"), "from the host").unwrap();
        fs::set_permissions(path.join("file.txt"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(path.join("tree/a"), "a").unwrap();
        fs::write(path.join("tree/inner/b"), "b").unwrap();
        symlink("../a", path.join("tree/inner/link")).unwrap();
        symlink("file.txt", path.join("link")).unwrap();
        symlink("tree", path.join("linked")).unwrap();
        nix::unistd::mkfifo(&path.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::write(place.join("secret"), "secret").unwrap();
        Self { _directory: directory, path }
    }

    pub fn roots(&self) -> [(&'static str, &str); 1] {
        [("ENGINE_HOST_ROOTS", self.path.to_str().unwrap())]
    }

    /// The input with this path below the directory.
    pub fn input(&self, below: &str) -> String {
        format!("host://{}/{below}", self.path.display())
    }
}

pub fn stage(scene: &EngineScene, workspace: &str, inputs: &Value) -> Reply {
    scene.post(&format!("{workspace}/stage"), &json!({"inputs": inputs}))
}

#[track_caller]
fn staged(scene: &EngineScene, workspace: &str, inputs: &Value) -> Vec<Value> {
    let reply = stage(scene, workspace, inputs);
    assert_eq!(reply.status, 200, "{}", reply.json());
    reply.json()["inputs"].as_array().unwrap().clone()
}

pub fn save(scene: &EngineScene, target: &str, bytes: &[u8]) {
    let saved = ask(&scene.service, "POST", &format!("/v1/artifacts/{target}"), "", bytes);
    assert_eq!(saved.status, 201, "{}", saved.json());
}

#[test]
fn inputs_of_every_scheme_are_staged_and_recorded() {
    let host = HostPlace::new();
    let Some(scene) = scene(&host.roots()) else { return };
    let session = json!({"app": "a", "user": "u", "session": "s"});
    let workspace = scene.create(&json!({"artifact_session": session}));
    save(&scene, "dir/data.csv?app=a&user=u&session=s", b"zero");
    save(&scene, "dir/data.csv?app=a&user=u&session=s", b"one");
    scene.sh(
        &workspace,
        "mkdir -p skills/pdf/scripts work/d; echo run >skills/pdf/scripts/run.sh; \
         chmod 755 skills/pdf/scripts/run.sh; echo w >work/d/w; ln -s d/w work/l",
    );
    let inputs = staged(
        &scene,
        &workspace,
        &json!([
            {"from": "artifact://dir/data.csv"},
            {"from": "artifact://dir/data.csv@0", "to": "work/zero", "mode": "copy"},
            {"from": host.input("file.txt"), "mode": "link"},
            {"from": host.input("tree/"), "to": "work/host/tree", "mode": "COPY"},
            {"from": "workspace://work/d"},
            {"from": "workspace://work/l", "to": "work/copied"},
            {"from": "workspace://work/d/w", "to": "/tmp/in/w", "mode": "link"},
            {"from": "skill://pdf/scripts/run.sh", "mode": "link"},
            {"from": "skill://pdf", "to": "work/pdf", "mode": ""},
        ]),
    );
    let facts: Vec<Value> = inputs
        .iter()
        .map(|input| json!([input["to"], input["resolved"], input["mode"], input["version"]]))
        .collect();
    let below = |name: &str| host.path.join(name).display().to_string();
    assert_eq!(
        facts,
        [
            json!(["work/inputs/data.csv", "dir/data.csv", "copy", 1]),
            json!(["work/zero", "dir/data.csv", "copy", 0]),
            json!(["work/inputs/file.txt", below("file.txt"), "copy", null]),
            json!(["work/host/tree", format!("{}/", below("tree")), "copy", null]),
            json!(["work/inputs/d", "work/d", "copy", null]),
            json!(["work/copied", "work/l", "copy", null]),
            json!(["/tmp/in/w", "work/d/w", "link", null]),
            json!(["work/inputs/run.sh", "skills/pdf/scripts/run.sh", "link", null]),
            json!(["work/pdf", "skills/pdf", "copy", null]),
        ]
    );
    let seen = scene.sh(
        &workspace,
        "cat work/inputs/data.csv work/zero; cat work/inputs/file.txt work/host/tree/inner/link \
         work/inputs/d/w work/copied /tmp/in/w work/pdf/scripts/run.sh; \
         readlink /tmp/in/w work/inputs/run.sh; cat work/inputs/run.sh; \
         stat -c '%a %u %F' work/inputs/file.txt work/pdf/scripts/run.sh work/copied work/host/tree",
    );
    assert_eq!(
        seen,
        "onezerofrom the hostaw\nw\nw\nrun\n/workspace/work/d/w\n\
         ../../skills/pdf/scripts/run.sh\nrun\n640 10001 regular file\n755 10001 regular file\n\
         644 10001 regular file\n755 10001 directory\n"
    );
    let metadata = scene.get(&format!("{workspace}/metadata")).json();
    assert_eq!(metadata["inputs"].as_array().unwrap(), &inputs);
    assert_eq!(metadata["inputs"][0]["ts"], metadata["updated_at"]);
    assert_eq!(scene.sh(&workspace, "stat -c '%a %u' metadata.json"), "600 10001\n");
}

#[test]
fn all_inputs_are_staged_or_none() {
    let host = HostPlace::new();
    let Some(scene) = scene(&host.roots()) else { return };
    let workspace = scene.create(&json!({"policy": {"max_disk_bytes": 1 << 20}}));
    save(&scene, "a", b"a");
    save(&scene, "big", &vec![7; 2 << 20]);
    scene.sh(
        &workspace,
        "echo old >work/old; mkdir work/dir; echo kept >work/dir/kept; ln -s /etc work/etc; \
         ln -s ../../secret work/out; mkfifo work/fifo; ln -s nowhere work/dangling; mkdir work/place",
    );
    let read_only = json!({"src": host.input("tree"), "to": "skills/ro", "read_only": true});
    assert_eq!(scene.post(&format!("{workspace}/stage-directory"), &read_only).status, 200);
    let state = || {
        scene.sh(
            &workspace,
            "find . /tmp -type f -exec sha256sum {} + | sort; find . /tmp | grep -v /run_ | sort",
        )
    };
    let before = state();
    let secret = format!("host://{}", host.path.parent().unwrap().join("secret").display());
    let up = format!("host://{}/../secret", host.path.display());
    for (bad, status, code) in [
        (json!({"from": "http://x/y"}), 422, "input.unsupported"),
        (json!({"from": "host://relative"}), 422, "input.unsupported"),
        (json!({"from": "/etc/passwd"}), 422, "input.unsupported"),
        (json!({"from": ""}), 422, "input.unsupported"),
        (json!({"from": "artifact://none"}), 404, "input.not_found"),
        (json!({"from": "artifact://a@1"}), 404, "input.not_found"),
        (json!({"from": "artifact://"}), 422, "validation.invalid_request"),
        (json!({"from": "artifact://../a"}), 422, "validation.invalid_request"),
        (json!({"from": "workspace://none"}), 404, "input.not_found"),
        (json!({"from": "workspace://none", "mode": "link"}), 404, "input.not_found"),
        (json!({"from": "workspace://work/dangling", "mode": "link"}), 404, "input.not_found"),
        (json!({"from": "workspace://work/etc/passwd"}), 409, "file.through_link"),
        (json!({"from": "workspace://work/out"}), 409, "file.through_link"),
        (json!({"from": "workspace://work/out", "mode": "link"}), 409, "file.through_link"),
        (json!({"from": "workspace://work/fifo"}), 409, "file.not_regular"),
        (json!({"from": "workspace://work/fifo", "mode": "link"}), 409, "file.not_regular"),
        (json!({"from": "workspace://../../etc/passwd"}), 422, "validation.path_escape"),
        (json!({"from": "workspace:///etc/passwd"}), 422, "validation.path_escape"),
        (json!({"from": "skill://none/x"}), 404, "input.not_found"),
        (json!({"from": "skill://ro/../../work/old"}), 422, "validation.path_escape"),
        (json!({"from": "skill://../work/old"}), 422, "validation.path_escape"),
        (json!({"from": secret}), 403, "input.host_denied"),
        (json!({"from": up}), 403, "input.host_denied"),
        (json!({"from": "host:///etc/passwd"}), 403, "input.host_denied"),
        (json!({"from": host.input("link")}), 403, "input.host_denied"),
        (json!({"from": host.input("linked/a")}), 403, "input.host_denied"),
        (json!({"from": host.input("none")}), 404, "input.not_found"),
        (json!({"from": host.input("file.txt/x")}), 404, "input.not_found"),
        (json!({"from": host.input("fifo")}), 409, "file.not_regular"),
        (json!({"from": "artifact://a", "mode": "move"}), 422, "validation.invalid_request"),
        (json!({"from": "artifact://a", "to": "../x"}), 422, "validation.path_escape"),
        (json!({"from": "artifact://a", "to": "."}), 422, "validation.invalid_request"),
        (json!({"from": "artifact://a", "to": "metadata.json"}), 422, "validation.invalid_request"),
        (json!({"from": "artifact://a", "to": "work/etc/a"}), 409, "file.through_link"),
        (json!({"from": "artifact://a", "to": "work/fifo"}), 409, "file.not_regular"),
        (json!({"from": "artifact://a", "to": "work/place"}), 409, "file.not_regular"),
        (json!({"from": "artifact://a", "to": "skills/ro/x"}), 409, "file.read_only"),
        (json!({"from": "artifact://a", "to": "work/old"}), 422, "validation.invalid_request"),
        (
            json!({"from": "artifact://a", "to": "new/deep/link/x"}),
            422,
            "validation.invalid_request",
        ),
        (
            json!({"from": "workspace://work/dir", "to": "work/dir/x"}),
            422,
            "validation.invalid_request",
        ),
        (json!({"from": "artifact://big"}), 507, "workspace.disk_full"),
        (json!({"from": "artifact://a", "x": 1}), 422, "validation.invalid_request"),
        (json!({"to": "x"}), 422, "validation.invalid_request"),
    ] {
        let inputs = json!([
            {"from": "artifact://a", "to": "work/old"},
            {"from": "artifact://a", "to": "work/new/a"},
            {"from": "workspace://work/dir", "to": "new/deep/link", "mode": "link"},
            bad,
        ]);
        let reply = stage(&scene, &workspace, &inputs);
        assert_eq!(reply.status, status, "{bad}: {}", reply.json());
        reply.assert_error(status, code);
        assert_eq!(state(), before, "{bad}");
    }
    let many: Vec<Value> =
        (0..257).map(|n| json!({"from": "artifact://a", "to": n.to_string()})).collect();
    stage(&scene, &workspace, &json!(many)).assert_error(422, "validation.invalid_request");
    assert_eq!(state(), before);
    assert!(staged(&scene, &workspace, &json!([])).is_empty());
}

#[test]
fn a_pin_keeps_the_version_that_the_service_recorded_whatever_programs_write() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let version = |workspace: &str, input: Value| {
        staged(&scene, workspace, &json!([input]))[0]["version"].clone()
    };
    let pinned = |to: &str| json!({"from": "artifact://a", "to": to, "pin": true});
    save(&scene, "a", b"zero");
    assert_eq!(version(&workspace, pinned("x")), 0, "nothing is recorded: the newest there is");
    save(&scene, "a", b"one");
    save(&scene, "a", b"two");
    for plant in [
        "true",
        "rm -f metadata.json",
        r#"echo '{"inputs": [{"from": "artifact://a", "to": "x", "version": 1, "mode": "copy"}]}' >metadata.json"#,
        "echo '{' >metadata.json",
        "rm metadata.json; mkfifo metadata.json",
        "rm metadata.json; ln -s /etc/passwd metadata.json",
        "rm metadata.json; mkdir -p metadata.json/d",
    ] {
        scene.sh(&workspace, plant);
        assert_eq!(version(&workspace, pinned("x")), 0, "{plant}");
        assert_eq!(scene.sh(&workspace, "cat x"), "zero");
        let metadata = scene.get(&format!("{workspace}/metadata")).json();
        assert_eq!(metadata["inputs"].as_array().unwrap().last().unwrap()["version"], 0, "{plant}");
    }
    assert_eq!(version(&workspace, pinned("y")), 2, "another place");
    assert_eq!(version(&workspace, json!({"from": "artifact://a@1", "to": "x", "pin": true})), 1);
    assert_eq!(version(&workspace, pinned("x")), 1, "the newest that was staged there");
    assert_eq!(version(&workspace, json!({"from": "artifact://a", "to": "z"})), 2);
    // A fork and a snapshot know what was staged before them.
    let fork = scene.post(&format!("{workspace}/fork"), &json!({})).json();
    let fork = format!("/v1/workspaces/{}", fork["workspace_id"].as_str().unwrap());
    assert_eq!(version(&fork, pinned("x")), 1);
    let snapshot = scene.post(&format!("{workspace}/snapshot"), &json!({})).json();
    let copy = scene.create(&json!({"snapshot": snapshot["snapshot_id"]}));
    assert_eq!(version(&copy, pinned("x")), 1);
    assert_eq!(version(&scene.create(&json!({})), pinned("x")), 2, "a workspace of its own");
    assert_eq!(scene.delete("/v1/artifacts/a").status, 204);
    let inputs = json!([pinned("x")]);
    stage(&scene, &workspace, &inputs).assert_error(404, "input.not_found");
}

#[test]
fn a_planted_link_at_the_place_is_replaced_and_never_followed() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    save(&scene, "a", b"staged");
    scene.sh(
        &workspace,
        "echo mine >work/target; mkdir work/inputs work/d; echo in >work/d/in; ln -s in work/d/l; ln -s ../target work/inputs/a; \
         ln -s /etc/passwd work/p; mkdir -p work/t/sub; ln -s /etc work/t2",
    );
    staged(
        &scene,
        &workspace,
        &json!([
            {"from": "artifact://a"},
            {"from": "artifact://a", "to": "work/p"},
            {"from": "workspace://work/d", "to": "work/t"},
            {"from": "workspace://work/target", "to": "work/t2", "mode": "link"},
        ]),
    );
    let seen = scene.sh(
        &workspace,
        "cat work/target; cat work/inputs/a work/p; stat -c %F work/inputs/a work/p; ls -A work work/t; \
         readlink work/t/l work/t2",
    );
    assert_eq!(
        seen,
        "mine\nstagedstagedregular file\nregular file\nwork:\nd\ninputs\np\nt\nt2\ntarget\n\nwork/t:\n\
         in\nl\nin\ntarget\n"
    );
}

#[test]
fn an_artifact_of_another_token_is_not_found() {
    let Some(scene) = scene_with_tokens(&[]) else { return };
    let saved = ask(&scene.service, "POST", "/v1/artifacts/a", &bearer(0), b"mine");
    assert_eq!(saved.status, 201);
    let stage = |client: usize| {
        let made = scene.post_with("/v1/workspaces", &bearer(client), &json!({})).json();
        let id = made["workspace_id"].as_str().unwrap().to_owned();
        let body = json!({"inputs": [{"from": "artifact://a"}]});
        scene.post_with(&format!("/v1/workspaces/{id}/stage"), &bearer(client), &body)
    };
    assert_eq!(stage(0).status, 200);
    stage(1).assert_error(404, "input.not_found");
}

#[test]
fn nothing_of_the_host_is_staged_unless_the_operator_allows_it() {
    let host = HostPlace::new();
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    let inputs = json!([{"from": host.input("file.txt")}]);
    stage(&scene, &workspace, &inputs).assert_error(403, "input.host_denied");
    let body = json!({"src": host.input("tree"), "to": "skills/x"});
    let reply = scene.post(&format!("{workspace}/stage-directory"), &body);
    reply.assert_error(403, "input.host_denied");
}
