//! What `--commit` applies, and what it refuses.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use crate::support::{EndedTrial, OWNER, TrialPlace, exact, is_privileged, paths, tree};

#[test]
fn changes_are_applied_if_the_command_exits_0() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "old"), ("gone/a", "a"), ("file", "x")]);
    let script = "echo new >f; rm -r gone; mkdir -p d/e; echo x >d/e/g; chmod 750 d
        rm file; mkdir file; echo y >file/y; ln f f2; chmod 600 d/e/g";
    here.sh("--commit", script).exits(0);
    assert_eq!(here.read("f"), "new\n");
    let after = tree(&here.dir);
    let names: Vec<_> = after.keys().map(|path| String::from_utf8_lossy(path)).collect();
    assert_eq!(names, ["d", "d/e", "d/e/g", "f", "f2", "file", "file/y"]);
    assert!(after.values().all(|node| node.owner == (OWNER, OWNER)), "{after:?}");
    assert_eq!(after[&b"d"[..]].mode & 0o7777, 0o750);
    assert_eq!(after[&b"d/e/g"[..]].mode & 0o7777, 0o600);
    assert_eq!(after[&b"f2"[..]].first_name, b"f", "two names of one file");
}

#[test]
fn nothing_is_applied_if_the_command_fails_or_by_default() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "old")]);
    let before = exact(&here.dir);
    here.sh("--commit", "echo new >f; exit 4").exits(4).changes(&["M f"]).says("not committed");
    here.sh("--commit --timeout 1s", "echo new >f; sleep 60").exits(124);
    here.sh("--commit", "echo new >f; kill -9 $$").exits(137);
    here.sh("", "echo new >f").exits(0).changes(&["M f"]);
    here.sh("--dry-run", "echo new >f; rm -r /tmp/home; mkdir d").exits(0);
    assert_eq!(exact(&here.dir), before);
}

#[test]
fn a_modified_file_keeps_its_owner() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "old")]);
    std::os::unix::fs::chown(here.dir.join("f"), Some(OWNER), Some(9)).unwrap();
    here.sh("--commit", "echo new >>f; echo x >g").exits(0);
    let owner = |name: &str| {
        let metadata = here.dir.join(name).metadata().unwrap();
        (metadata.uid(), metadata.gid())
    };
    assert_eq!((owner("f"), owner("g")), ((OWNER, 9), (OWNER, OWNER)));
}

#[test]
fn a_modified_file_keeps_its_access_list_and_attributes() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "old")]);
    let file = here.dir.join("f");
    let python = |script: &str| {
        let output = Command::new("python3").args(["-c", script]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // An access list that names the owner: version, then tag, permissions and id of each entry.
    python(
        "import os, struct, sys
list = [(1, 6, -1), (2, 4, 31001), (4, 4, -1), (16, 4, -1), (32, 0, -1)]
value = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in list)
os.setxattr(sys.argv[1], 'system.posix_acl_access', value)
os.setxattr(sys.argv[1], 'user.note', b'kept')",
    );
    let shown = "import os, sys
print([(name, os.getxattr(sys.argv[1], name)) for name in sorted(os.listxattr(sys.argv[1]))])";
    let before = python(shown);
    assert!(before.contains("posix_acl_access") && before.contains("kept"), "{before}");
    here.sh("--commit", "echo new >>f").exits(0);
    assert_eq!((here.read("f").as_str(), python(shown)), ("oldnew\n", before));
}

#[test]
fn without_privileges_a_commit_belongs_to_its_caller() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "old")]);
    let user = OWNER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    let exec = here.command("--commit");
    command.arg(exec.get_program()).args(exec.get_args());
    command.args(["--", "sh", "-c", "echo new >>f; mkdir d; echo x >d/g"]);
    EndedTrial::of(command.current_dir("/")).exits(0).changes(&["A d", "A d/g", "M f"]);
    let after = tree(&here.dir);
    for path in [&b"f"[..], b"d", b"d/g"] {
        assert_eq!(after[path].owner, (OWNER, OWNER), "{}", String::from_utf8_lossy(path));
    }
    assert_eq!(here.read("f"), "oldnew\n");
}

#[test]
fn names_of_one_file_stay_names_of_one_file() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("a", "old"), ("z", "z")]);
    fs::hard_link(here.dir.join("a"), here.dir.join("b")).unwrap();
    fs::hard_link(here.dir.join("z"), here.dir.join("w")).unwrap();
    here.write("d/k", "k");
    fs::hard_link(here.dir.join("d/k"), here.dir.join("k")).unwrap();
    let script = "echo new >>a; cat b; ln z y; rm w; mv d e";
    let lines = ["M a", "M b", "D d", "D d/k", "A e", "A e/k", "D w", "A y"];
    here.sh("--commit", script).exits(0).changes(&lines);
    assert_eq!(here.read("b"), "oldnew\n");
    let after = tree(&here.dir);
    assert_eq!(after[&b"b"[..]].first_name, b"a");
    assert_eq!(after[&b"z"[..]].first_name, b"y");
    assert_eq!(after[&b"k"[..]].first_name, b"e/k");
}

#[test]
fn set_id_bits_and_links_that_lead_out_are_left_out_and_named() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("s", "s"), ("id", "id"), ("kept", "k")]);
    let set_id = fs::Permissions::from_mode(0o6755);
    fs::set_permissions(here.dir.join("id"), set_id).unwrap();
    let script = "chmod 4755 s 2>/dev/null; mv id u; ln -s ../../etc/passwd up; ln -s /root root
        ln -s /usr/bin/env env; ln -s s inside; ln -s nowhere dangling; mkdir d; ln -s ../s d/l
        ln -s $PWD/s whole; ln -s /tmp/x tmp; rm kept; ln -s /proc/self/root kept";
    let done = here.sh("--commit", script).exits(0);
    let done = ["root", "tmp", "kept"].iter().fold(done, |done, name| {
        done.says(&format!("not committed: {name}: a link that leads out of the directory"))
    });
    done.says("not committed: u: its set-id bits");
    let names: Vec<_> =
        paths(&here.dir).iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    let links = ["d", "d/l", "dangling", "env", "inside", "kept", "s", "u", "up", "whole"];
    assert!(
        names.iter().filter(|name| *name != "up").eq(links.iter().filter(|name| **name != "up"))
    );
    assert_eq!(here.read("kept"), "k");
    for (name, mode) in [("s", 0o644), ("u", 0o755)] {
        assert_eq!(here.dir.join(name).metadata().unwrap().mode() & 0o7777, mode, "{name}");
    }
}

#[test]
fn a_path_that_was_changed_in_the_directory_too_stops_the_commit() {
    if !is_privileged() {
        return;
    }
    type Meanwhile = fn(&TrialPlace);
    let rows: [(&str, &str, Meanwhile); 9] = [
        ("echo new >f", "f", |here| here.write("f", "other")),
        ("echo new >f", "f", |here| fs::remove_file(here.dir.join("f")).unwrap()),
        ("rm f; echo new >f", "f", |here| fs::remove_file(here.dir.join("f")).unwrap()),
        ("rm f", "f", |here| here.write("f", "old")),
        ("rm f", "f", |here| fs::remove_file(here.dir.join("f")).unwrap()),
        ("echo >n", "n", |here| here.write("n", "theirs")),
        ("echo new >f", "f", |here| {
            fs::remove_file(here.dir.join("f")).unwrap();
            symlink("g", here.dir.join("f")).unwrap();
        }),
        ("rm -r d", "d/new", |here| here.write("d/new", "theirs")),
        ("echo >>f; echo >d/n", "d", |here| fs::remove_dir_all(here.dir.join("d")).unwrap()),
    ];
    for (script, path, change) in rows {
        let here = TrialPlace::with(&[("f", "old"), ("d/x", "x"), ("other", "o")]);
        let waiting = here.wait_in("--commit", &format!("{script}; echo more >>other"));
        change(&here);
        let between = exact(&here.dir);
        waiting.end().exits(125).says(&format!("conflict: {path}"));
        assert_eq!(exact(&here.dir), between, "{script}");
        assert_eq!(here.read("other"), "o", "{script}");
    }
}

#[test]
fn a_change_of_another_path_is_no_conflict() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "old"), ("d/x", "x"), ("other", "o")]);
    let waiting = here.wait_in("--commit", "echo new >f; echo y >d/y");
    here.write("other", "theirs");
    here.write("d/z", "theirs");
    waiting.end().exits(0);
    assert_eq!((here.read("f"), here.read("other")), ("new\n".to_owned(), "theirs".to_owned()));
    assert!(here.has("d/y") && here.has("d/z"));
}

#[test]
fn a_virtual_environment_and_sparse_files_are_committed() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::new();
    let script = "mkdir -p v/bin; ln -s /usr/bin/env v/bin/env; ln -s env v/bin/env3
        truncate -s 100M hole; echo end >>hole; mkdir t; chmod 1777 t";
    here.sh("--commit --disk 1GiB", script).exits(0);
    let hole = here.dir.join("hole").metadata().unwrap();
    assert_eq!(hole.size(), (100 << 20) + 4);
    assert!(hole.blocks() < 1000, "{} blocks", hole.blocks());
    assert_eq!(fs::read_link(here.dir.join("v/bin/env")).unwrap().to_str(), Some("/usr/bin/env"));
    assert_eq!(here.dir.join("t").metadata().unwrap().permissions().mode() & 0o7777, 0o1777);
}
