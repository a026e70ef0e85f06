//! Which files of the host a program can see, and where it can write.

use std::fs;
use std::path::Path;

use cofferdam_sandbox::engine::RootSource;
use cofferdam_test_support::{self as support, MIB, Program, lines_of, stdout_of};

#[test]
fn only_the_sandboxs_own_places_can_be_written() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::sh(
        "for place in / /etc /usr /usr/bin /dev /proc /proc/sys/kernel /proc/self/attr; do
             (echo x >$place/cofferdam-test) 2>/dev/null && echo written: $place
             mkdir $place/cofferdam-test.d 2>/dev/null && echo made: $place
         done
         for file in /etc/passwd /bin/sh /proc/sys/kernel/hostname /proc/sys/kernel/core_pattern \
                     /proc/sysrq-trigger /proc/self/oom_score_adj; do
             (echo -1000 >>$file) 2>/dev/null && echo written: $file
             chmod 777 $file 2>/dev/null && echo changed: $file
         done; true",
    ));
    assert_eq!(stdout_of(&report), "");
}

#[test]
fn private_host_files_are_absent() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::sh(
        "for path in /root /home /sys /boot /srv /mnt /media /lost+found /var/log /var/lib/dpkg \
                     /run/cofferdam /etc/ssh /etc/ssl/private/x /.overlay/work/x /.empty/x; do
             test -e $path && ! test -d $path/. && echo seen: $path
             ls -A $path 2>/dev/null | sed \"s|^|in $path: |\"
         done; true",
    ));
    assert_eq!(stdout_of(&report), "");
}

#[test]
fn temporary_files_of_the_host_are_invisible() {
    let Some(host) = support::host() else { return };
    let place = tempfile::tempdir().unwrap();
    assert!(place.path().starts_with("/tmp"), "{:?}", place.path());
    let report = host.run(Program::sh(&format!(
        "test -e {} && echo seen; ls -A /tmp; ls -A /run; ls -A /var/tmp",
        place.path().display()
    )));
    assert_eq!(lines_of(&report), ["home", "lock"]);
}

#[test]
fn proc_and_dev_expose_nothing_of_the_kernel_or_the_host() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::sh(
        "ls /dev | tr '\\n' ' '; echo
         for path in kcore kallsyms kmsg timer_list keys key-users sysrq-trigger interrupts; do
             head -c 1 /proc/$path 2>/dev/null | wc -c
         done | sort -u
         ls -A /proc/irq /proc/bus /proc/fs /proc/acpi 2>/dev/null | grep -v :",
    ));
    let lines = lines_of(&report);
    assert_eq!(lines[0], "fd full null random shm stderr stdin stdout urandom zero");
    assert_eq!(lines[1], "0");
    assert!(lines[2..].iter().all(String::is_empty), "{lines:?}");
}

#[test]
fn device_nodes_work_but_cannot_be_created() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::sh(
        "head -c 3 /dev/zero | wc -c; head -c 3 /dev/urandom | wc -c; echo x >/dev/null && echo ok
         (echo x >/dev/full) 2>/dev/null || echo full
         mknod /tmp/null c 1 3 2>/dev/null || echo refused",
    ));
    assert_eq!(lines_of(&report), ["3", "3", "ok", "full", "refused"]);
}

#[test]
fn private_paths_of_the_service_are_hidden_below_shown_directories() {
    let Some(open) = support::host_with(|_| {}) else { return };
    let place = tempfile::tempdir_in("/usr/local").unwrap();
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let (directory, file) = (place.path().join("store"), place.path().join("token"));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("other-run"), "secret").unwrap();
    fs::write(&file, "secret").unwrap();
    let script =
        format!("cat {}/other-run {} 2>&1 | grep -c secret", directory.display(), file.display());
    let look = || Program::sh(&script);

    assert_eq!(
        stdout_of(&open.run(look())),
        "1\n",
        "the test shows nothing where nothing is hidden"
    );
    drop(open);
    let Some(host) = support::host_with(|config| config.private = vec![directory, file]) else {
        return;
    };
    let report = host.run(look());
    assert_eq!(report.stdout.text(), "0\n");
}

#[test]
fn a_run_sees_no_files_of_the_run_before_in_the_same_slot() {
    let Some(host) = support::host() else { return };
    let slot = host.host_id();
    let places = "/tmp /var/tmp /dev/shm /run /run/lock /workspace $HOME";
    let write = Program::sh(&format!("for place in {places}; do echo x >$place/left; done"));
    let look = Program::sh(&format!(
        "for place in {places}; do test -e $place/left && echo $place; done; true"
    ));
    assert_eq!(stdout_of(&host.try_run_as(&slot, write).unwrap()), "");
    assert_eq!(stdout_of(&host.try_run_as(&slot, look).unwrap()), "");
}

#[test]
fn a_program_in_tmp_can_be_executed() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::sh("cp /bin/true /tmp/program && /tmp/program && echo ran"));
    assert_eq!(lines_of(&report), ["ran"]);
}

#[test]
fn a_tree_deeper_than_path_max_is_removed_with_its_sandbox() {
    let Some(host) = support::host() else { return };
    let slot = host.host_id();
    let dig = Program::python(
        "import os\n\
         for n in range(6000): os.mkdir('d'); os.chdir('d')\n\
         print('deep')\n",
    );
    assert_eq!(lines_of(&host.try_run_as(&slot, dig).unwrap()), ["deep"]);
    assert_eq!(stdout_of(&host.try_run_as(&slot, Program::sh("ls -A")).unwrap()), "");
}

#[test]
fn binds_have_the_requested_mode() {
    let Some(host) = support::host() else { return };
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(place.path().join("given"), "text\n").unwrap();
    let report = host.run(
        Program::sh(
            "cat /read/given /one
             (echo x >/read/new) 2>/dev/null && echo written
             echo made >/write/new || echo refused
             stat -c %u:%g /write/given /write/new",
        )
        .bind(place.path(), "/read", true)
        .bind(&place.path().join("given"), "/one", true)
        .bind(place.path(), "/write", false),
    );
    if !support::has("mounts with mapped ids", !report.stdout.text().contains("refused")) {
        return;
    }
    assert_eq!(lines_of(&report), ["text", "text", "10001:10001", "10001:10001"]);
    let made = place.path().join("new");
    assert_eq!(fs::read_to_string(&made).unwrap(), "made\n");
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&made).unwrap());
    assert_eq!(owner, 0, "on the host it is its directory's owner's");
}

/// With the numbers of system calls that have no wrapper in the C library.
const SET_ID_BITS: &str = "import ctypes, errno, os\n\
    os.umask(0)\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    name = lambda text: os.path.join('/write', text).encode()\n\
    open(name('x'), 'w').close()\n\
    for call in (\n\
        lambda mode: libc.chmod(name('x'), mode),\n\
        lambda mode: libc.fchmod(os.open(name('x'), os.O_RDONLY), mode),\n\
        lambda mode: libc.fchmodat(-100, name('x'), mode, 0),\n\
        lambda mode: libc.syscall(452, -100, name('x'), mode, 0),\n\
        lambda mode: libc.creat(name('creat%o' % mode), mode),\n\
        lambda mode: libc.open(name('open%o' % mode), os.O_CREAT | os.O_RDWR, mode),\n\
        lambda mode: libc.open(b'/write', os.O_TMPFILE | os.O_RDWR, mode),\n\
        lambda mode: libc.mknod(name('mknod%o' % mode), 0o100000 | mode, 0),\n\
    ):\n\
    \u{20}   for mode in (0o4755, 0o2755):\n\
    \u{20}       print(errno.errorcode.get(call(mode) < 0 and ctypes.get_errno(), 'done'))\n\
    how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_RDWR, 0o4755, 0)\n\
    print(libc.syscall(437, -100, name('openat2'), how, 24), errno.errorcode[ctypes.get_errno()])\n";

#[test]
fn a_writable_bind_takes_no_set_id_program_or_device() {
    let Some(host) = support::host() else { return };
    let place = tempfile::tempdir().unwrap();
    // So that the bits are tested even where ids cannot be mapped.
    fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let report = host.run(Program::python(SET_ID_BITS).bind(place.path(), "/write", false));
    let lines = lines_of(&report);
    assert_eq!(lines.len(), 17, "{lines:?}");
    assert!(lines[..16].iter().all(|line| line == "EPERM"), "{lines:?}");
    assert_eq!(lines[16], "-1 ENOSYS");
    for entry in fs::read_dir(place.path()).unwrap() {
        let metadata = entry.unwrap().metadata().unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&metadata) & 0o6000, 0);
    }
}

#[test]
fn a_link_in_the_root_cannot_move_a_mount_point_out_of_the_sandbox() {
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(root.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(outside.path(), root.path().join("data")).unwrap();
    let config = |config: &mut cofferdam_sandbox::engine::SandboxConfig| {
        config.root = RootSource::Directory(root.path().to_owned());
    };
    let Some(host) = support::host_with(config) else { return };
    let bound = Program::sh("true").bind(root.path(), "/data/made", true);
    assert!(host.try_run(bound).is_err(), "there is nothing behind the link inside");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn an_extra_tmpfs_has_its_own_size_and_belongs_to_the_tenant() {
    let Some(host) = support::host() else { return };
    let report = host.run(
        Program::sh("head -c 5000000 /dev/zero >/scratch/file; stat -c '%s %u' /scratch/file")
            .tmpfs("/scratch", Some(MIB)),
    );
    assert_eq!(report.stdout.text(), "1048576 10001\n");
}

#[test]
fn a_configured_root_replaces_the_root_of_the_host() {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for directory in ["bin", "etc", "lib", "lib64", "usr", "var/tmp", "marker", "tmp"] {
        fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    copy_with_libraries(Path::new("/bin/sh"), root.path());
    copy_with_libraries(Path::new("/bin/ls"), root.path());
    let config = |config: &mut cofferdam_sandbox::engine::SandboxConfig| {
        config.root = RootSource::Directory(root.path().to_owned());
    };
    let Some(host) = support::host_with(config) else { return };
    let report = host.run(Program::sh("echo x >/var/tmp/x; echo x >/tmp/x; ls /"));
    assert_eq!(
        stdout_of(&report).split_whitespace().collect::<Vec<_>>(),
        [
            "bin",
            "dev",
            "etc",
            "lib",
            "lib64",
            "marker",
            "proc",
            "run",
            "tmp",
            "usr",
            "var",
            "workspace"
        ]
    );
    assert_eq!(report.stderr.text(), "");
}

/// Copies a program and the libraries it is linked to below `root`.
fn copy_with_libraries(program: &Path, root: &Path) {
    let output = std::process::Command::new("ldd").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    for source in libraries.chain([program]) {
        let target = root.join(source.strip_prefix("/").unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(source, target).unwrap();
    }
}
