//! Trees that clients stage: what they may bring, and what programs do with read-only ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use super::staging::{plain_directory, stage, stage_archive, stage_directory};
use crate::Unexercised;
use crate::rows::engine::archives;
use crate::target::Target;

/// Makes a tree of the host with everything that no workspace may get.
fn hostile_directory(root: &Path) -> PathBuf {
    let directory = root.join("hostile");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("run"), "x").unwrap();
    fs::set_permissions(directory.join("run"), PermissionsExt::from_mode(0o6755)).unwrap();
    fs::hard_link(directory.join("run"), directory.join("again")).unwrap();
    fs::create_dir(directory.join("d")).unwrap();
    fs::set_permissions(directory.join("d"), PermissionsExt::from_mode(0o3777)).unwrap();
    mkfifo(&directory.join("fifo"), Mode::S_IRWXU).unwrap();
    let all = Mode::from_bits_truncate(0o666);
    mknod(&directory.join("null"), SFlag::S_IFCHR, all, makedev(1, 3)).unwrap();
    directory
}

pub fn special_files(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    workspace.sh("mkfifo work/fifo; mkdir work/d; mkfifo work/d/fifo; echo x >work/d/x; ln work/d/x work/d/y");
    workspace.sh("python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('work/socket')\"");
    let root = own.new_host_directory();
    let hostile = hostile_directory(&root);
    let before = workspace.names();
    let host = |name: &str| format!("host://{}/{name}", hostile.display());
    for from in [
        "workspace://work/fifo".to_owned(),
        "workspace://work/socket".to_owned(),
        host("fifo"),
        host("null"),
    ] {
        for mode in ["copy", "link"] {
            stage(&workspace, &from, Some("work/in"), mode).assert_error(409, "file.not_regular");
        }
    }
    let fine = json!({"from": "workspace://work/d/x"});
    stage(&workspace, "workspace://work/d/x", Some("work/fifo"), "copy")
        .assert_error(409, "file.not_regular");
    let digest = "0".repeat(64);
    for (what, archive) in archives::unsafe_archives() {
        let staged = stage_archive(&workspace, &archive, "work/d");
        assert_eq!(
            (staged.status, &staged.json()["code"]),
            (422, &json!("archive.unsafe")),
            "{what}"
        );
        let stored = client.ask("PUT", &format!("/v1/skills/{digest}"), &archive);
        assert_eq!(
            (stored.status, &stored.json()["code"]),
            (422, &json!("archive.unsafe")),
            "{what}"
        );
        assert_eq!(workspace.names(), before, "{what}");
    }
    // One invalid input: nothing is staged.
    let both = json!({"inputs": [fine, {"from": "workspace://work/fifo"}]});
    assert_eq!(workspace.post("/stage", &both).status, 409);
    assert_eq!(workspace.names(), before);
    // Of a tree, only files, directories and inner links are copied; hard links become separate files.
    assert_eq!(stage(&workspace, "workspace://work/d", Some("work/in"), "copy").status, 200);
    assert_eq!(stage_directory(&workspace, &hostile, "work/host", false).status, 200);
    let seen = workspace.sh("cd work; find in host -printf '%p %y %m %U %n\\n' | grep -v ' d ' | sort; find in host -type d -perm /7000");
    let expected = "host/again f 755 10001 1\nhost/run f 755 10001 1\nin/x f 644 10001 1\nin/y f 644 10001 1\n";
    assert_eq!(seen, expected);
    Ok(())
}

/// What a program tries on a read-only tree. It prints what worked.
const CHANGES: &str = "t() { if \"$@\" 2>/dev/null; then echo \"worked: $*\"; fi; }
    change() { t chmod u+w $1; t chmod u+w $1/file; t chown 10001 $1/file; t sh -c \"echo x >$1/file\"
        t touch $1/new; t rm -f $1/file; t mv $1/file $1/other; t mkdir $1/d; t ln -s x $1/l; t truncate -s 0 $1/file; }";

pub fn read_only_trees(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    let plain = plain_directory(&own.new_host_directory());
    assert_eq!(stage_directory(&workspace, &plain, "skills/ro", true).status, 200);
    let changed = workspace.sh(&format!(
        "{CHANGES}
        change skills/ro; t mv skills/ro work/was; mv skills/ro skills/was; change skills/was; mkdir skills/ro
        echo mine >skills/ro/file
        ln -s was skills/link; change skills/link; mv skills skills2; mkdir skills; change skills2/was"
    ));
    assert_eq!(changed, "");
    let refused: [(&str, &str, Value); 6] = [
        ("PUT", "/files?path=skills2/was/file", json!("x")),
        ("PUT", "/files?path=skills2/was/new", json!("x")),
        ("DELETE", "/files?path=skills2/was/file", json!(null)),
        ("POST", "/mkdir", json!({"path": "skills2/was/d"})),
        ("POST", "/move", json!({"from": "skills2/was/file", "to": "work/file"})),
        (
            "POST",
            "/stage",
            json!({"inputs": [{"from": "workspace://skills2/was/file", "to": "skills2/was/x"}]}),
        ),
    ];
    for (method, below, body) in refused {
        let reply = workspace.ask(method, below, body.to_string().as_bytes());
        assert_eq!(
            (reply.status, &reply.json()["code"]),
            (409, &json!("file.read_only")),
            "{method} {below}"
        );
    }
    stage_directory(&workspace, &plain, "skills2/was/d", false).assert_error(409, "file.read_only");
    // A program moves the tree away and puts its own in the place, again and again, while another one is staged.
    let swap = "while :; do mv work/ro work/old; mkdir work/ro; echo mine >work/ro/file; ln -s ../old work/ro/l
        mv work/old work/gone; rm -rf work/ro; mv work/gone work/ro; echo round; done 2>/dev/null";
    assert_eq!(stage_directory(&workspace, &plain, "work/ro", true).status, 200);
    let session = workspace.start_sh(swap, "swap");
    for _ in 0..20 {
        let staged = stage_directory(&workspace, &plain, "work/ro", true);
        assert!(matches!(staged.status, 200 | 400..500), "{} {}", staged.status, staged.json());
    }
    assert_eq!(workspace.ask("DELETE", &session, b"").status, 204);
    // Whatever is not the program's has the staged contents, cannot be changed, and has no temporary name.
    let changed = workspace.sh(&format!(
        "{CHANGES}
        for tree in $(find work skills2 -type d ! -uid 10001); do
            change $tree; [ \"$(cat $tree/file)\" = plain ] || echo \"changed: $tree\"; done
        find . -name '.cofferdam-*'"
    ));
    assert_eq!(changed, "");
    assert_eq!(workspace.sh("find work skills2 -type f ! -uid 10001 | head -1 | wc -l"), "1\n");
    Ok(())
}
