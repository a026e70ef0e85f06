//! The Landlock rules: what they refuse independently of the mounts, and what they must allow.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use cofferdam_test_support::{self as support, Host, MIB, Program, lines_of};

/// A sandbox backend on a kernel with Landlock.
#[track_caller]
fn ruled_host() -> Option<Host> {
    let host = support::host()?;
    let lacks = host.sandbox().not_enforced().iter().any(|line| line.starts_with("landlock:"));
    support::has("Landlock", !lacks).then_some(host)
}

/// A program of `source` with a function `tried(call, *arguments)`, which prints `ok` or the name
/// of the error.
fn trying(source: &str) -> Program {
    Program::python(&format!(
        "import ctypes, errno, fcntl, os, signal, socket, stat\n\
         def tried(call, *arguments):\n\
         \u{20}   try: call(*arguments); print('ok')\n\
         \u{20}   except OSError as error: print(errno.errorcode[error.errno])\n\
         def write(path): open(path, 'w').close()\n\
         {source}"
    ))
}

/// A node with number 0 is not a device and needs no privilege. Neither mounts nor file modes
/// forbid it. The filter does, so it is absent here.
#[test]
fn a_run_cannot_create_a_device_node_even_without_needing_privilege() {
    let (Some(_), Some(host)) = (ruled_host(), support::host_without_filter()) else { return };
    let report = host.run(
        trying(
            "for place in '/workspace', '/tmp', '/run', '/dev/shm', '/var/tmp', '/more', '/rw':\n\
             \u{20}   for kind in stat.S_IFCHR, stat.S_IFBLK: tried(os.mknod, place + '/x', kind | 0o600, 0)\n",
        )
        .tmpfs("/more", Some(MIB))
        .bind(shared().path(), "/rw", false),
    );
    assert_eq!(lines_of(&report), ["EACCES"; 14]);
}

/// The directories created for the mount point of a bind belong to the tenant.
#[test]
fn a_run_cannot_write_to_its_own_mount_point_directories() {
    let Some(host) = ruled_host() else { return };
    let report = host.run(
        trying(
            "print(os.stat('/data').st_uid == os.getuid(), os.access('/data', os.W_OK))\n\
             tried(os.mkdir, '/data/x')\n\
             tried(write, '/data/x')\n\
             tried(os.symlink, 'x', '/data/x')\n\
             tried(os.rename, '/data/in', '/tmp/in')\n\
             tried(os.listdir, '/data')\n",
        )
        .bind("/usr/share".as_ref(), "/data/in", true),
    );
    assert_eq!(
        lines_of(&report),
        ["True True", "EACCES", "EACCES", "EACCES", "EACCES", "ok"],
        "{}",
        report.stderr.text()
    );
}

/// A host directory that every user can write to.
fn shared() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o777)).unwrap();
    place
}

/// Compilers write next to their target and rename. Package tools create links from a cache.
#[test]
fn files_and_directories_can_be_moved_between_all_places_of_a_run() {
    let Some(host) = ruled_host() else { return };
    let report = host.run(trying(
        "places = ['/workspace', '/tmp', '/run', '/dev/shm', os.environ['HOME']]\n\
         for a in places:\n\
         \u{20}   for b in places:\n\
         \u{20}       os.makedirs(a + '/one/sub'); os.mkdir(b + '/two'); write(a + '/one/file')\n\
         \u{20}       os.link(a + '/one/file', b + '/two/linked')\n\
         \u{20}       os.rename(a + '/one/file', b + '/two/moved')\n\
         \u{20}       os.rename(a + '/one/sub', b + '/two/sub')\n\
         \u{20}       for name in 'linked', 'moved': os.unlink(b + '/two/' + name)\n\
         \u{20}       for name in b + '/two/sub', b + '/two', a + '/one': os.rmdir(name)\n\
         print('moved')\n",
    ));
    assert_eq!(lines_of(&report), ["moved"], "{}", report.stderr.text());
}

/// The same in other file systems: an overlay workspace, an extra tmpfs, a writable bind.
#[test]
fn files_can_be_moved_within_every_other_file_system() {
    let Some(host) = ruled_host() else { return };
    let (template, place) = (tempfile::tempdir().unwrap(), shared());
    fs::set_permissions(template.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for number in 0..64 {
        fs::write(template.path().join(format!("given-{number}")), "text").unwrap();
    }
    fs::write(place.path().join("file"), "").unwrap();
    fs::set_permissions(place.path().join("file"), PermissionsExt::from_mode(0o666)).unwrap();
    let report = host.run(
        trying(
            "for place in '/workspace', '/more', '/rw':\n\
             \u{20}   os.makedirs(place + '/a'); os.makedirs(place + '/b'); write(place + '/a/x')\n\
             \u{20}   tried(os.rename, place + '/a/x', place + '/b/x')\n\
             \u{20}   tried(os.link, place + '/b/x', place + '/a/y')\n\
             tried(os.rename, '/workspace/given-1', '/workspace/a/moved')\n\
             tried(os.truncate, '/file', 0)\n\
             tried(write, '/file')\n\
             tried(os.mkdir, '/usr/x')\n",
        )
        .template(template.path())
        .tmpfs("/more", Some(MIB))
        .bind(place.path(), "/rw", false)
        .bind(&place.path().join("file"), "/file", false),
    );
    let mut want = vec!["ok"; 9];
    want.push("EROFS");
    assert_eq!(lines_of(&report), want, "{}", report.stderr.text());
}

#[test]
fn files_devices_and_sockets_work_under_landlock() {
    let Some(host) = ruled_host() else { return };
    let report = host.run(trying(
        "def nameless():\n\
         \u{20}   fd = os.open('/tmp', os.O_TMPFILE | os.O_RDWR); os.write(fd, b'text')\n\
         \u{20}   os.link(str(fd), '/workspace/named', src_dir_fd=os.open('/proc/self/fd', 0), follow_symlinks=True)\n\
         \u{20}   assert open('/workspace/named').read() == 'text'\n\
         def bound():\n\
         \u{20}   server = socket.socket(socket.AF_UNIX); server.bind('/tmp/socket'); server.listen()\n\
         \u{20}   socket.socket(socket.AF_UNIX).connect('/tmp/socket')\n\
         def device(path, flags):\n\
         \u{20}   fd = os.open(path, flags)\n\
         \u{20}   try: fcntl.ioctl(fd, 0x5401, bytes(64))\n\
         \u{20}   except OSError as error: assert error.errno in (errno.ENOTTY, errno.EINVAL), error\n\
         tried(nameless)\n\
         tried(os.mkfifo, '/tmp/fifo')\n\
         tried(bound)\n\
         write('/tmp/long'); tried(os.truncate, '/tmp/long', 100)\n\
         for name in 'null', 'zero', 'full', 'random', 'urandom': tried(device, '/dev/' + name, os.O_RDWR)\n\
         for name in 'stdin', 'stdout', 'stderr', 'fd/1': tried(device, '/dev/' + name, os.O_RDONLY if name == 'stdin' else os.O_WRONLY)\n\
         tried(os.open, '/dev/null', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)\n",
    ));
    assert_eq!(lines_of(&report), ["ok"; 14], "{}", report.stderr.text());
}

/// Signals and abstract sockets are restricted to the sandbox, not within it. Addresses of `lo` are
/// open to every process inside.
#[test]
fn processes_of_a_run_can_reach_each_other() {
    let Some(host) = ruled_host() else { return };
    let report = host.run(trying(
        "for family, address in (socket.AF_UNIX, '\\0name'), (socket.AF_INET, ('127.0.0.1', 4041)):\n\
         \u{20}   read, write = os.pipe()\n\
         \u{20}   child = os.fork()\n\
         \u{20}   if child == 0:\n\
         \u{20}       os.setsid()\n\
         \u{20}       server = socket.socket(family); server.bind(address); server.listen()\n\
         \u{20}       os.write(write, b'x'); signal.pause()\n\
         \u{20}   os.read(read, 1)\n\
         \u{20}   tried(socket.socket(family).connect, address)\n\
         \u{20}   tried(os.kill, child, signal.SIGTERM)\n\
         \u{20}   print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n",
    ));
    assert_eq!(lines_of(&report), ["ok", "ok", "-15", "ok", "ok", "-15"]);
}

#[test]
fn programs_can_be_executed_from_every_readable_place() {
    let Some(host) = ruled_host() else { return };
    let report = host.run(
        Program::sh(
            "for place in /tmp /workspace /dev/shm /run /more; do
                 cp /bin/true $place/program && $place/program && echo ran
             done
             /shown/true && echo ran",
        )
        .tmpfs("/more", Some(MIB))
        .bind(Path::new("/usr/bin"), "/shown", true),
    );
    assert_eq!(lines_of(&report), ["ran"; 6], "{}", report.stderr.text());
}
