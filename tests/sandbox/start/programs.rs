//! The file that a task executes: it is found as sandboxes see it, and exactly that file is
//! executed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use cofferdam::executor::FoundProgram;
use cofferdam_sandbox::engine::RootSource;
use cofferdam_sandbox::engine::builtin_profile;
use cofferdam_seccomp::profile::Profile;
use cofferdam_test_support::{self as support, Host, Root, TaskBuilder};

/// A script that prints which file it is.
const WHO: [&str; 2] = ["readlink", "/proc/self/exe"];

#[track_caller]
fn find(host: &Host, name: &str) -> FoundProgram {
    host.executor().find_program(name).unwrap().unwrap_or_else(|| panic!("no {name}"))
}

#[track_caller]
fn host_of(root: &Root) -> Option<Host> {
    support::host_with(|config| config.root = RootSource::Directory(root.path().to_owned()))
}

#[test]
fn without_an_environment_a_program_has_an_empty_one() {
    let Some(host) = support::host() else { return };
    let ran = TaskBuilder::at("/usr/bin/env", &["env"]).run(host.executor());
    assert_eq!(ran.stdout(), "");
    let ran = TaskBuilder::open(find(&host, "env"), &["env"]).run(host.executor());
    assert_eq!(ran.stdout(), "");
}

#[test]
fn the_file_at_a_path_is_executed_regardless_of_argv0() {
    let Some(host) = support::host() else { return };
    let ran = TaskBuilder::at("/bin/sh", &["/bin/false", "-c", "echo $0 $1", "a", "b"]);
    assert_eq!(ran.run(host.executor()).stdout(), "a b\n");
    let ran =
        TaskBuilder::open(find(&host, "readlink"), &["/bin/false", WHO[1]]).run(host.executor());
    assert!(ran.stdout().ends_with("/readlink\n"), "{}", ran.stdout());
}

#[test]
fn a_program_executed_by_descriptor_sees_its_path_in_the_sandbox() {
    let Some(host) = support::host() else { return };
    let found = find(&host, "readlink");
    let target = found.target.clone();
    assert_eq!(fs::canonicalize(&found.path).unwrap(), fs::canonicalize(&target).unwrap());
    assert_eq!(TaskBuilder::open(found, &WHO).run(host.executor()).stdout(), format!("{target}\n"));

    let root = Root::with(&["/usr/bin/readlink"]);
    let Some(host) = host_of(&root) else { return };
    let found = find(&host, "readlink");
    assert_eq!((&*found.path, &*found.target), ("/usr/bin/readlink", "/usr/bin/readlink"));
    let ran = TaskBuilder::open(found, &WHO).run(host.executor());
    assert_eq!(ran.stdout(), "/usr/bin/readlink\n");
}

#[test]
fn the_file_that_was_inspected_is_the_file_that_is_executed() {
    let root = Root::with(&["/usr/bin/readlink", "/usr/bin/env", "/bin/sh"]);
    let Some(host) = host_of(&root) else { return };
    root.script("/opt/tools/script", "#!/bin/sh\necho old\n");
    root.script("/opt/other/script", "#!/bin/sh\necho new\n");
    fs::copy(root.at("/usr/bin/readlink"), root.at("/opt/tools/program")).unwrap();
    fs::copy(root.at("/usr/bin/env"), root.at("/opt/other/program")).unwrap();
    let (tools, other) = (root.at("/opt/tools"), root.at("/opt/other"));
    let arguments: [(&str, &[&str]); 2] = [("script", &["script"]), ("program", &WHO)];

    // Meanwhile another file takes the name, or another directory that of its directory, or the
    // name is gone.
    for change in ["replaced", "directory replaced", "removed"] {
        let changed = tempfile::tempdir_in(root.at("/opt")).unwrap();
        for (name, argv) in arguments {
            let (old, new) = (tools.join(name), other.join(name));
            let kept = changed.path().join(name);
            fs::copy(&old, &kept).unwrap();
            let found = find(&host, &format!("/opt/tools/{name}"));
            let mut read = Vec::new();
            let mut file = fs::File::from(found.file.try_clone().unwrap());
            std::io::Read::read_to_end(&mut file, &mut read).unwrap();
            assert_eq!(read, fs::read(&old).unwrap());
            let aside = changed.path().join("aside");
            match change {
                "replaced" => {
                    let copy = other.join("copy");
                    fs::copy(&new, &copy).unwrap();
                    fs::rename(&copy, &old).unwrap();
                }
                "removed" => fs::remove_file(&old).unwrap(),
                _ => {
                    fs::rename(&tools, &aside).unwrap();
                    fs::rename(&other, &tools).unwrap();
                }
            }
            let ran = TaskBuilder::open(found, argv).run(host.executor());
            if aside.exists() {
                fs::rename(&tools, &other).unwrap();
                fs::rename(&aside, &tools).unwrap();
            }
            let stdout = ran.stdout();
            let want = match (name, change) {
                ("script", _) => "old\n",
                (_, "directory replaced") => "/opt/tools/program\n",
                _ => "/.program\n",
            };
            assert_eq!(stdout, want, "{name} {change}");
            let _ = fs::remove_file(&old);
            fs::rename(&kept, &old).unwrap();
        }
    }
}

#[test]
fn a_script_executed_by_descriptor_knows_its_path() {
    let root = Root::with(&["/usr/bin/env", "/bin/sh", "/usr/bin/dirname"]);
    let Some(host) = host_of(&root) else { return };
    root.script(
        "/opt/app/bin/run",
        "#!/bin/sh\necho $0 $1\ncat=$(/usr/bin/dirname $0); echo $cat\n",
    );
    fs::create_dir_all(root.at("/usr/local/bin")).unwrap();
    symlink("/opt/app/bin/run", root.at("/usr/local/bin/run")).unwrap();
    let found = find(&host, "run");
    assert_eq!((&*found.path, &*found.target), ("/usr/local/bin/run", "/opt/app/bin/run"));
    let ran = TaskBuilder::open(found, &["run", "word"]).run(host.executor());
    assert_eq!(ran.stdout(), "/opt/app/bin/run word\n/opt/app/bin\n");
}

#[test]
fn the_attached_program_file_is_read_only() {
    let root = Root::with(&["/bin/sh"]);
    let Some(host) = host_of(&root) else { return };
    let text = "#!/bin/sh\n(echo more >>$0) 2>/dev/null || echo refused\n";
    root.script("/opt/open", text);
    fs::set_permissions(root.at("/opt/open"), fs::Permissions::from_mode(0o777)).unwrap();
    let ran = TaskBuilder::open(find(&host, "/opt/open"), &["open"]).run(host.executor());
    assert_eq!(ran.stdout(), "refused\n");
    assert_eq!(fs::read_to_string(root.at("/opt/open")).unwrap(), text);
}

#[test]
fn a_program_executed_by_descriptor_has_no_extra_descriptor() {
    let Some(host) = support::host() else { return };
    let argv = ["ls", "/proc/self/fd"];
    let by_path = TaskBuilder::at("/bin/ls", &argv).run(host.executor()).stdout();
    assert_eq!(TaskBuilder::open(find(&host, "ls"), &argv).run(host.executor()).stdout(), by_path);
}

#[test]
fn every_shipped_profile_allows_execution_by_descriptor() {
    for profile in Profile::builtin_names().filter(|name| *name != "init") {
        let with = |config: &mut cofferdam_sandbox::engine::SandboxConfig| {
            config.profile = builtin_profile(profile).unwrap();
        };
        let Some(host) = support::host_with(with) else { return };
        let found = find(&host, "readlink");
        let target = found.target.clone();
        let ran = TaskBuilder::open(found, &WHO).run(host.executor());
        assert_eq!(ran.stdout(), format!("{target}\n"), "{profile}");
    }
}

#[test]
fn a_failed_exec_is_not_a_setup_failure_and_collects_nothing() {
    let Some(host) = support::host() else { return };
    for (path, errno) in [
        ("/usr/bin/absent", libc::ENOENT),
        ("/usr/bin/env/below", libc::ENOTDIR),
        ("/etc/passwd", libc::EACCES),
        ("/etc", libc::EACCES),
    ] {
        let ran = TaskBuilder::at(path, &["x"]).file("given", 1).run(host.executor());
        // Like execvp, a path through a file counts as not found.
        let errno = if errno == libc::ENOTDIR { libc::ENOENT } else { errno };
        assert_eq!((ran.exec_errno(), ran.collected), (errno, None), "{path}");
    }
    // The file was found in another root and does not exist in this sandbox.
    let mut found = find(&host, "env");
    found.target = "/usr/bin/absent".to_owned();
    let ran = TaskBuilder::open(found, &["env"]).run(host.executor());
    assert_eq!((ran.exec_errno(), ran.collected), (libc::ENOENT, None));
}

#[test]
fn a_file_that_was_found_but_cannot_be_executed_reports_its_errno() {
    let root = Root::with(&["/bin/sh"]);
    let Some(host) = host_of(&root) else { return };
    root.script("/opt/private", "#!/bin/sh\n");
    fs::set_permissions(root.at("/opt/private"), fs::Permissions::from_mode(0o700)).unwrap();
    root.script("/opt/nothing", "neither a program nor a script");
    root.script("/opt/orphan", "#!/opt/absent\n");
    for (path, errno) in [
        ("/opt/private", libc::EACCES),
        ("/opt/nothing", libc::ENOEXEC),
        ("/opt/orphan", libc::ENOENT),
    ] {
        let ran = TaskBuilder::open(find(&host, path), &["x"]).run(host.executor());
        assert_eq!((ran.exec_errno(), ran.collected), (errno, None), "{path}");
    }
}

#[test]
fn programs_are_found_where_sandboxes_have_them() {
    let root = Root::with(&["/usr/bin/env"]);
    let Some(host) = host_of(&root) else { return };
    root.script("/opt/tool", "");
    root.script("/workspace/tool", "");
    root.script("/tmp/tool", "");
    root.script("/usr/bin/dir/tool", "");
    fs::create_dir_all(root.at("/usr/local/bin")).unwrap();
    fs::write(root.at("/usr/bin/plain"), "").unwrap();
    let fifo = root.at("/usr/bin/fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o777)).unwrap();
    // On the host this link leads to an existing file.
    assert!(fs::metadata("/usr/bin/readlink").is_ok());
    for (link, to) in [
        ("absolute", "/opt/tool"),
        ("climbing", "../../../../../opt/tool"),
        ("hosts", "/usr/bin/readlink"),
        ("around", "around"),
        ("own", "/tmp/tool"),
        ("first", "/opt/tool"),
    ] {
        symlink(to, root.at("/usr/bin").join(link)).unwrap();
    }
    symlink("/usr/bin/env", root.at("/usr/local/bin/first")).unwrap();
    for (name, found) in [
        ("env", Some(("/usr/bin/env", "/usr/bin/env"))),
        ("/bin/env", Some(("/bin/env", "/usr/bin/env"))),
        ("absolute", Some(("/usr/bin/absolute", "/opt/tool"))),
        ("climbing", Some(("/usr/bin/climbing", "/opt/tool"))),
        ("first", Some(("/usr/local/bin/first", "/usr/bin/env"))),
        ("/opt/tool", Some(("/opt/tool", "/opt/tool"))),
        ("tool", None),
        ("hosts", None),
        ("around", None),
        ("own", None),
        ("plain", None),
        ("fifo", None),
        ("dir", None),
        ("..", None),
        ("", None),
        ("./env", None),
        ("bin/env", None),
        ("usr/bin/env", None),
        ("/opt", None),
        ("/opt/tool/", None),
        ("/tmp/tool", None),
        ("/workspace/tool", None),
        ("/workspace/../opt/tool", None),
        ("//opt/./tool", Some(("//opt/./tool", "/opt/tool"))),
        ("/proc/self/exe", None),
        ("nul\0", None),
    ] {
        let program = host.executor().find_program(name).unwrap();
        let program = program.as_ref().map(|program| (&*program.path, &*program.target));
        assert_eq!(program, found, "{name:?}");
    }
}

#[test]
fn programs_hidden_from_sandboxes_are_not_found() {
    let hidden = "/usr/bin/env";
    let private = |config: &mut cofferdam_sandbox::engine::SandboxConfig| {
        config.private = vec![hidden.into()];
    };
    let Some(host) = support::host_with(private) else { return };
    assert!(host.executor().find_program("env").unwrap().is_none());
    assert!(host.executor().find_program(hidden).unwrap().is_none());
    find(&host, "readlink");

    // Not a system directory at the top level of the host.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let own = place.path().join("tool");
    fs::copy("/usr/bin/readlink", &own).unwrap();
    assert!(host.executor().find_program(own.to_str().unwrap()).unwrap().is_none());
}
