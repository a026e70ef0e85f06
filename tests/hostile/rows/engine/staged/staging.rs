//! Inputs and directories that clients stage where programs have planted something.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cofferdam_test_server::exchange::Reply;
use cofferdam_test_server::service::wait_until;
use serde_json::json;

use crate::Unexercised;
use crate::engine::{SOON, Workspace, promptly};
use crate::rows::engine::archives;
use crate::target::Target;

/// Requests of the race at least.
const TRIES_MIN: u64 = 66;

/// Stages one input.
pub fn stage(workspace: &Workspace<'_>, from: &str, to: Option<&str>, mode: &str) -> Reply {
    let mut input = json!({"from": from, "mode": mode});
    if let Some(to) = to {
        input["to"] = json!(to);
    }
    promptly(from, || workspace.post("/stage", &json!({"inputs": [input]})))
}

/// Stages a directory of the host.
pub fn stage_directory(workspace: &Workspace<'_>, src: &Path, to: &str, read_only: bool) -> Reply {
    let body =
        json!({"src": format!("host://{}", src.display()), "to": to, "read_only": read_only});
    promptly(to, || workspace.post("/stage-directory", &body))
}

/// Sends an archive to be staged as a directory.
pub fn stage_archive(workspace: &Workspace<'_>, archive: &[u8], to: &str) -> Reply {
    let target = format!("{}/stage-directory?to={to}", workspace.path);
    let kind = "content-type: application/x-tar\r\n";
    promptly(to, || workspace.client().ask_with("POST", &target, kind, archive))
}

/// A directory of the host with a file, which inputs may name.
pub fn plain_directory(root: &Path) -> PathBuf {
    let directory = root.join("plain");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("file"), "plain").unwrap();
    directory
}

pub fn links(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    let outside = own.sentinel.directory.path();
    let shown = outside.display();
    workspace.sh(&format!(
        "cd work; ln -s {shown} dir; ln -s {shown}/sentinel secret; ln -s dir chain2; ln -s ./chain2 chain
         ln -s ../../../../.. up; ln -s /proc/self/root root; ln -s loop loop; ln -s /etc etc; ln -s {shown} /tmp/dir
         mkdir tree fine ../skills/s; echo x >fine/x; ln -s {shown} tree/in; ln -s ../../.. fine.d
         ln -s {shown} ../skills/s/dir; ln -s ../../../../etc ../skills/s/up; ln -s {shown} ../skills/link"
    ));
    let root = own.new_host_directory();
    let plain = plain_directory(&root);
    fs::create_dir(root.join("tree")).unwrap();
    for (name, to) in [
        ("secret", outside.join("sentinel")),
        ("dir", outside.to_owned()),
        ("up", "..".into()),
        ("self", "/proc/self/root".into()),
        ("tree/in", outside.to_owned()),
    ] {
        symlink(to, root.join(name)).unwrap();
    }
    let before = workspace.names();
    let through = [
        "workspace://work/dir/sentinel",
        "workspace://work/secret",
        "workspace://work/dir",
        "workspace://work/chain/sentinel",
        "workspace://work/up/etc/passwd",
        "workspace://work/root/etc/passwd",
        "workspace://work/etc/passwd",
        "workspace://work/loop",
        "workspace:///tmp/dir/sentinel",
        "skill://s/dir/sentinel",
        "skill://s/up/passwd",
        "skill://link/sentinel",
        "skill://link",
    ];
    let trees = ["workspace://work/tree", "workspace://work", "skill://s"];
    let below = |name: &str| format!("host://{}/{name}", root.display());
    let host = ["secret", "dir", "dir/sentinel", "up", "self/etc/passwd", "tree"].map(below);
    let all = through.into_iter().chain(trees).chain(host.iter().map(String::as_str));
    for from in all {
        for mode in ["copy", "link"] {
            // A link to a tree is a link inside.
            let reply = stage(&workspace, from, Some("staged"), mode);
            let is_link = mode == "link" && trees.contains(&from);
            let is_refused = matches!(reply.status, 403 | 404 | 409);
            assert!(is_refused || is_link, "{mode} {from}: {} {}", reply.status, reply.json());
            workspace.ask("DELETE", "/files?path=staged&recursive=true", b"");
        }
    }
    let archive = archives::of_one_file("new");
    for to in [
        "work/dir/new",
        "work/chain/new",
        "work/up/tmp/new",
        "/tmp/dir/new",
        "work/etc/new",
        "work/loop/new",
    ] {
        let input = stage(&workspace, "workspace://work/fine/x", Some(to), "copy");
        let link = stage(&workspace, "workspace://work/fine/x", Some(to), "link");
        let directory = stage_directory(&workspace, &plain, to, false);
        for reply in [input, link, directory, stage_archive(&workspace, &archive, to)] {
            reply.assert_error(409, "file.through_link");
        }
    }
    assert_eq!(workspace.names(), before);
    // A link that is itself the place is replaced.
    assert_eq!(
        stage(&workspace, "workspace://work/fine/x", Some("work/secret"), "copy").status,
        200
    );
    assert_eq!(stage_directory(&workspace, &plain, "work/dir", false).status, 200);
    assert_eq!(workspace.sh("cat work/secret work/dir/file"), "x\nplain");
    own.sentinel.assert_intact();
    Ok(())
}

pub fn names_that_leave(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let client = target.engine()?;
    let workspace =
        client.create(&json!({"exec_id": "../../up", "artifact_session": {"app": "names"}}));
    workspace.sh("mkdir skills/s; echo x >skills/s/x; echo x >work/x; echo x >out/x");
    let root = own.new_host_directory();
    let plain = plain_directory(&root);
    let before = workspace.names();
    let leaves = |reply: &Reply, what: &str| {
        let code = reply.json()["code"].as_str().unwrap_or_default().to_owned();
        assert_eq!(reply.status, 422, "{what}: {code}");
    };
    for from in [
        "workspace://../x",
        "workspace:///etc/passwd",
        "workspace://work/../../etc/passwd",
        "workspace:///proc/self/root/etc/passwd",
        "workspace://",
        "skill://../work/x",
        "skill://s/../../work/x",
        "skill://s/../../../etc/passwd",
        "skill://./x",
        "artifact://../x",
        "artifact://a/../../x",
        "file:///etc/passwd",
        "/etc/passwd",
    ] {
        leaves(&stage(&workspace, from, Some("work/staged"), "copy"), from);
    }
    let root_shown = root.display();
    for from in [
        "host:///etc/passwd".to_owned(),
        format!("host://{root_shown}/../x"),
        format!("host://{root_shown}/plain/../../../x"),
        format!("host://{}", root.parent().unwrap().parent().unwrap().display()),
        "host:///proc/self/root/etc/passwd".to_owned(),
    ] {
        stage(&workspace, &from, Some("work/staged"), "copy")
            .assert_error(403, "input.host_denied");
    }
    let archive = archives::of_one_file("new");
    for to in [
        "../x",
        "a/../../x",
        "/etc/planted",
        "/workspace/../etc/x",
        "/proc/self/root/x",
        ".",
        "/workspace",
        "/tmp",
    ] {
        leaves(&stage(&workspace, "workspace://work/x", Some(to), "copy"), to);
        leaves(&stage_directory(&workspace, &plain, to, false), to);
        leaves(&stage_archive(&workspace, &archive, to), to);
    }
    for (glob, template) in [
        ("../*", ""),
        ("/etc/*", ""),
        ("out/../../*", ""),
        ("$WORKSPACE_DIR/../*", ""),
        ("out/x", "../{name}"),
        ("out/x", "{path}/../../x"),
        ("out/x", "{exec_id}/{name}"),
        ("out/x", "{stem}..{ext}"),
        ("out/x", "{name}@1"),
    ] {
        let spec = json!({"globs": [glob], "save": true, "name_template": template});
        let reply = workspace.post("/collect-outputs", &spec);
        // A pattern may also mean nothing.
        if reply.status != 200 || !template.is_empty() || reply.json()["files"] != json!([]) {
            leaves(&reply, &format!("{glob} {template}"));
        }
    }
    assert_eq!(workspace.names(), before);
    assert_eq!(client.get("/v1/artifacts?app=names").json()["artifacts"], json!([]));
    Ok(())
}

pub fn directory_swapped_for_a_link(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let client = target.engine()?;
    let workspace = client.create(&json!({"artifact_session": {"app": "raced"}}));
    workspace.sh("echo fine >fine; mkdir work/d; echo fine >work/d/file");
    let plain = plain_directory(&own.new_host_directory());
    let outside = own.sentinel.directory.path().to_str().unwrap();
    let swap = workspace.upload("swap");
    let session =
        workspace.start(&json!({"cmd": swap, "args": ["/workspace/work", outside, "60000"]}));
    let output = |glob: &str| {
        let spec =
            json!({"globs": [glob], "save": true, "inline": true, "name_template": "raced/"});
        workspace.post("/collect-outputs", &spec)
    };
    let archive = archives::of_one_file("file");
    let (mut served, mut refused) = (0_u64, 0_u64);
    wait_until("both answers", SOON, || {
        let replies = [
            stage(&workspace, "workspace://work/d/file", Some("copied/file"), "copy"),
            stage(&workspace, "workspace://work/l/sentinel", Some("copied/other"), "copy"),
            stage(&workspace, "workspace://work/d/sentinel", Some("copied/sentinel"), "copy"),
            stage(&workspace, "workspace://work/d", Some("copied/d"), "copy"),
            stage(&workspace, "workspace://work", Some("copied/work"), "copy"),
            stage(&workspace, "workspace://work/d/file", Some("copied/link"), "link"),
            stage(&workspace, "workspace://fine", Some("work/d/fine"), "copy"),
            stage_directory(&workspace, &plain, "work/d/plain", true),
            stage_archive(&workspace, &archive, "work/d/sent"),
            output("work/d/sentinel"),
            output("work/**"),
        ];
        for reply in replies {
            match reply.status {
                200..300 => served += 1,
                // The entry that is exchanged may be gone for a moment.
                400..500 => refused += 1,
                status => panic!("{status} {}", reply.json()),
            }
        }
        served > 0 && refused > 0 && served + refused >= TRIES_MIN
    });
    assert_eq!(workspace.ask("DELETE", &session, b"").status, 204);
    let leaked = workspace.sh("grep -rl 'sentinel-' copied /tmp 2>/dev/null || echo none");
    assert_eq!(leaked, "none\n");
    for artifact in client.get("/v1/artifacts?app=raced").json()["artifacts"].as_array().unwrap() {
        // The client fails if an answer has the secret.
        let name = artifact["name"].as_str().unwrap();
        client.get(&format!("/v1/artifacts/{name}?app=raced"));
        assert!(!name.ends_with("/sentinel"), "{name}");
        client.ask("DELETE", &format!("/v1/artifacts/{name}?app=raced"), b"");
    }
    own.sentinel.assert_intact();
    Ok(())
}
