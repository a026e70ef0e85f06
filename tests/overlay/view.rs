//! What a command sees of a directory, and how its changes are told.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::process::Command;

use crate::support::{EndedTrial, OWNER, TrialPlace, exact, exec, is_privileged, tree};

#[test]
fn a_directory_is_shown_at_its_own_path_and_is_the_working_directory() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "old\n")]);
    let before = exact(&here.dir);
    let done = here.sh("", "pwd; cat f; echo new >f; cat f; ls -A").exits(0).changes(&["M f"]);
    assert_eq!(done.stdout(), format!("{}\nold\nnew\nf\n", here.dir.display()));
    assert_eq!(exact(&here.dir), before);
    let done = here.sh("--workdir /tmp", "pwd").exits(0).changes(&[]);
    assert_eq!(done.stdout(), "/tmp\n");
}

#[test]
fn a_directory_below_the_systems_own_is_shown_in_its_place() {
    if !is_privileged() {
        return;
    }
    let places = ["/opt", "/tmp", "/dev/shm", "/var/tmp", "/usr/local"];
    for place in places.iter().filter(|place| std::path::Path::new(place).is_dir()) {
        let place = tempfile::tempdir_in(place).unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(place.path().join("f"), "here\n").unwrap();
        let mut command = exec();
        command.arg("--overlay").arg(place.path());
        let script = "cat f; echo x >g; ls /usr/bin/env";
        let done =
            EndedTrial::of(command.args(["--", "sh", "-c", script])).exits(0).changes(&["A g"]);
        assert_eq!(done.stdout(), "here\n/usr/bin/env\n", "{}", place.path().display());
    }
}

#[test]
fn files_of_the_owner_are_the_programs_and_others_are_read_by_their_modes() {
    if !is_privileged() {
        return;
    }
    let here =
        TrialPlace::with(&[("own", "own"), ("group", "x"), ("open", "open"), ("shut", "shut")]);
    for (name, mode) in [("own", 0o600), ("group", 0o600), ("open", 0o666), ("shut", 0o600)] {
        fs::set_permissions(here.dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for name in ["open", "shut"] {
        chown(here.dir.join(name), Some(0), Some(0)).unwrap();
    }
    chown(here.dir.join("group"), Some(OWNER), Some(7)).unwrap();
    let script = "stat -c %u . own; echo a >>own && echo a >>group && echo written; cat open
        echo a 2>/dev/null >>open || echo refused
        cat shut 2>/dev/null || echo shut";
    let done = here.sh("--commit", script).exits(0).changes(&["M group", "M own"]);
    assert_eq!(done.stdout(), "10001\n10001\nwritten\nopenrefused\nshut\n");
    let after = tree(&here.dir);
    assert_eq!(after[&b"own"[..]].owner, (OWNER, OWNER));
    assert_eq!(after[&b"group"[..]].owner, (OWNER, 7));
    assert_eq!(here.read("own"), "owna\n");
}

#[test]
fn a_directory_that_no_overlay_takes_fails_before_the_command_starts() {
    if !is_privileged() {
        return;
    }
    let mut command = exec();
    let done = EndedTrial::of(command.args(["--overlay", "/proc/sys", "--", "echo", "started"]));
    assert_eq!(done.exits(125).stdout(), "");
}

#[test]
fn a_wrong_call_exits_2() {
    for words in [
        "--overlay /no/such -- true",
        "--overlay /etc/passwd -- true",
        "--overlay / -- true",
        "--overlay /tmp --overlay /tmp -- true",
        "--overlay /tmp --dry-run --commit -- true",
        "--overlay /tmp --protect ../x -- true",
        "--commit -- true",
        "--changes c.json -- true",
    ] {
        let mut command = exec();
        let done = EndedTrial::of(command.args(words.split(' '))).exits(2);
        assert_eq!(done.stderr().lines().count(), 1, "{words}: {}", done.stderr());
    }
}

#[test]
fn changes_are_told_sorted_by_bytes_one_in_a_line() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[
        ("same", "s"),
        ("gone", "g"),
        ("old/a", "a"),
        ("old/b/c", "c"),
        ("mode", "m"),
        ("text", "t"),
        ("kind", "k"),
        ("tree/x", "x"),
        ("dir/keep", "k"),
    ]);
    let script = "echo s >s2; mv s2 same; printf s >same; touch same
        rm gone; rm -r old; chmod 700 mode; echo >>text
        rm kind; ln -s text kind; rm -r tree; echo >tree
        mkdir -p new/below; echo >new/below/f; echo >new-f; chmod 700 dir; echo >dir/more";
    let lines = [
        "A dir/more",
        "D gone",
        "T kind",
        "M mode",
        "A new",
        "A new-f",
        "A new/below",
        "A new/below/f",
        "D old",
        "D old/a",
        "D old/b",
        "D old/b/c",
        "M text",
        "T tree",
        "D tree/x",
    ];
    here.sh("", script).exits(0).changes(&lines);
    here.sh("", "mkdir d; rmdir d; rm same; printf s >same").exits(0).changes(&[]);
    // Also of a command that fails.
    here.sh("", "rm gone; exit 3").exits(3).changes(&["D gone"]);
}

#[test]
fn changes_are_written_as_json() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("gone", "12345"), ("text", "t")]);
    let file = here.beside("changes.json");
    let options = format!("--changes {}", file.display());
    here.sh(&options, "rm gone; echo >>text; chmod 755 text; mkdir new; ln -s a l").exits(0);
    let found: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let wanted = serde_json::json!([
        {"path": "gone", "change": "D", "kind": "file", "bytes": 5, "mode": "0644"},
        {"path": "l", "change": "A", "kind": "symlink", "bytes": 1, "mode": "0777"},
        {"path": "new", "change": "A", "kind": "directory", "bytes": 0, "mode": "0755"},
        {"path": "text", "change": "M", "kind": "file", "bytes": 2, "mode": "0755"},
    ]);
    assert_eq!(found, wanted);
    here.sh(&options, "true").exits(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), "[]\n");
}

#[test]
fn paths_of_several_directories_are_absolute() {
    if !is_privileged() {
        return;
    }
    let (one, two) = (TrialPlace::with(&[("f", "f")]), TrialPlace::with(&[("g", "g")]));
    let mut paths = [one.dir.join("f"), two.dir.join("g"), two.dir.join("h")];
    let script = format!("rm f; echo more >>{0}/g; echo >{0}/h", two.dir.display());
    let options = format!("--overlay {} --commit", two.dir.display());
    let done = one.sh(&options, &script).exits(0);
    paths.sort();
    let lines: Vec<_> = paths
        .iter()
        .map(|path| match path.file_name().and_then(|name| name.to_str()) {
            Some("f") => format!("D {}", path.display()),
            Some("g") => format!("M {}", path.display()),
            _ => format!("A {}", path.display()),
        })
        .collect();
    done.changes(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!one.has("f") && two.has("h"));
    assert_eq!(two.read("g"), "gmore\n");
}

#[test]
fn the_patch_is_one_that_git_applies() {
    if !is_privileged() {
        return;
    }
    let here =
        TrialPlace::with(&[("a", "1\n2\n"), ("gone", "g\n"), ("sub/k", "k\n"), ("mode", "m")]);
    symlink("a", here.dir.join("link")).unwrap();
    lchown(here.dir.join("link"), Some(OWNER), Some(OWNER)).unwrap();
    let patch = here.beside("p.patch");
    let script = "echo 3 >>a; rm gone; rm -r sub; echo k >sub; chmod 755 mode; ln -sf mode link
        printf '\\0\\1' >bin; mkdir d; echo >'d/with space'; mkfifo pipe; mkdir .git; echo >.git/x";
    let options = format!("--patch {}", patch.display());
    here.sh(&options, script)
        .exits(0)
        .says("not in the patch: pipe")
        .says("not in the patch: .git/x");
    let apply = |check: &[&str]| {
        let mut git = Command::new("git");
        git.arg("apply").args(check).arg(&patch).current_dir(&here.dir).output().unwrap()
    };
    let applied = apply(&[]);
    assert!(applied.status.success(), "{applied:?}");
    assert_eq!((here.read("a"), here.read("sub")), ("1\n2\n3\n".to_owned(), "k\n".to_owned()));
    assert!(!here.has("gone") && here.has("d/with space") && !here.has("pipe"));
    assert_eq!(fs::read(here.dir.join("bin")).unwrap(), [0, 1]);
    assert_eq!(fs::read_link(here.dir.join("link")).unwrap().to_str(), Some("mode"));
    let mode = here.dir.join("mode").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    here.sh(&options, "true").exits(0);
    assert_eq!(fs::read(&patch).unwrap(), b"");
}

#[test]
fn what_the_program_writes_counts_against_the_disk_limit() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::with(&[("f", "old")]);
    let before = exact(&here.dir);
    let script = "head -c 4000000 /dev/zero >big && echo written; head -c 400000 /dev/zero >/tmp/x
        test $(stat -c %s big) -lt 2097152";
    let done = here.sh("--disk 1MiB", script).exits(0);
    assert_eq!(done.stdout(), "");
    assert!(done.stderr().contains("No space left"), "{}", done.stderr());
    assert_eq!(exact(&here.dir), before);
}

#[test]
fn a_command_that_is_not_there_changes_nothing() {
    if !is_privileged() {
        return;
    }
    let here = TrialPlace::new();
    let mut command = here.command("--commit");
    EndedTrial::of(command.args(["--", "no-such-program"])).exits(127);
}
