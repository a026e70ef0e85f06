//! Sandboxes over a file system that outlives them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use cofferdam_core::Outcome;
use cofferdam_test_support::processes::processes_of;
use cofferdam_test_support::{self as support, MIB, MountedFiles, Program, ending, lines_of};

#[test]
fn files_in_the_workspace_tmp_and_home_are_there_for_the_next_sandbox_and_no_others() {
    let Some(host) = support::host() else { return };
    let files = MountedFiles::new(&host, "/workspace", 16 * MIB);
    let places = "/workspace /tmp $HOME /run /dev/shm /var/tmp";
    let write = Program::sh(&format!("for place in {places}; do echo kept >$place/file; done"));
    assert_eq!(lines_of(&host.run_over(&files, write)), [""; 0]);
    let list =
        Program::sh(&format!("for place in {places}; do ls $place/file; done 2>/dev/null; :"));
    assert_eq!(
        lines_of(&host.run_over(&files, list)),
        ["/workspace/file", "/tmp/file", "/tmp/home/file"]
    );
    let owner = fs::metadata(files.at("workspace/file")).unwrap().uid();
    assert_eq!(owner, files.host_id().id());
}

#[test]
fn another_path_shows_the_workspace_there_and_nowhere_else() {
    let Some(host) = support::host() else { return };
    for path in ["/home/agent", "/srv/a/b", "/mnt/x", "/data/project"] {
        let files = MountedFiles::new(&host, path, MIB);
        let script = "pwd; echo made >here; ls -a / | grep -c workspace; \
                      touch ../beside 2>/dev/null || echo closed; stat -c %u .. ";
        let report = host.run_over(&files, Program::sh(script).workdir(path));
        assert_eq!(lines_of(&report), [path, "0", "closed", "65534"], "{path}");
        assert_eq!(fs::read(files.at("workspace/here")).unwrap(), b"made\n");
    }
}

#[test]
fn neither_devices_nor_set_uid_bits_work_in_a_mounted_workspace() {
    let Some(host) = support::host() else { return };
    let files = MountedFiles::new(&host, "/workspace", MIB);
    let options = "grep -E ' (/workspace|/tmp) ' /proc/self/mounts | cut -d' ' -f2,4";
    for line in lines_of(&host.run_over(&files, Program::sh(options))) {
        assert!(line.contains("rw,nosuid,nodev"), "{line}");
    }
    let device = nix::sys::stat::makedev(1, 3);
    let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
    nix::sys::stat::mknod(
        &files.at("workspace/null"),
        nix::sys::stat::SFlag::S_IFCHR,
        mode,
        device,
    )
    .unwrap();
    let report = host.run_over(&files, Program::sh("chmod 666 null; cat null || echo refused"));
    assert!(report.stdout.text().contains("refused"), "{}", report.stdout.text());
}

#[test]
fn what_a_program_plants_does_not_keep_the_next_from_starting() {
    let Some(host) = support::host() else { return };
    let files = MountedFiles::new(&host, "/workspace", 64 << 10);
    let plant = "mkdir /tmp/.refused /workspace/.refused; ln -s /etc /workspace/etc; \
                 rm -r /tmp/home; ln -s /proc /tmp/home; \
                 mkfifo /workspace/fifo; dd if=/dev/zero of=/workspace/full bs=4096; \
                 chmod 0 /tmp /workspace";
    let report = host.run_over(&files, Program::sh(plant));
    assert_eq!(ending(&report), ("exited", Some(0)), "{}", report.stderr.text());
    let again = host.run_over(&files, Program::sh("echo started").workdir("/"));
    assert_eq!(lines_of(&again), ["started"]);
}

#[test]
fn a_full_workspace_explains_a_failure_and_a_full_scratch_does_too() {
    let Some(host) = support::host() else { return };
    let fill = |place| {
        let files = MountedFiles::new(&host, "/workspace", MIB).own_bytes_max(MIB);
        let script = format!("head -c 3000000 /dev/zero >{place}/file || exit 3");
        let report = host.run_over(&files, Program::sh(&script));
        let size = |path| fs::metadata(files.at(path)).map_or(0, |file| file.len());
        (ending(&report), size("workspace/file").max(size("tmp/file")) > 0)
    };
    let full = ("disk_limit", Some(3));
    for (place, is_kept) in
        [("/workspace", true), ("/tmp", true), ("/run", false), ("/dev/shm", false)]
    {
        assert_eq!(fill(place), (full, is_kept), "{place}");
    }
    // The control: with room for it, the same program succeeds.
    let files = MountedFiles::new(&host, "/workspace", 8 * MIB);
    let report = host.run_over(&files, Program::sh("head -c 3000000 /dev/zero >file || exit 3"));
    assert_eq!(ending(&report), ("exited", Some(0)));
}

#[test]
fn a_file_has_no_size_limit_but_that_of_the_disk() {
    let Some(host) = support::host() else { return };
    let files = MountedFiles::new(&host, "/workspace", MIB);
    let script = "ulimit -n; ulimit -f; truncate -s 1T sparse && stat -c %s sparse";
    let unlimited = Program::sh(script).limits(|limits| {
        limits.file_bytes_max = u64::MAX;
        limits.open_files_max = 4096;
    });
    let report = host.run_over(&files, unlimited);
    assert_eq!(lines_of(&report), ["4096", "unlimited", "1099511627776"]);
}

/// The kernel counts processes by host uid too, over all sandboxes of the workspace.
#[test]
fn sandboxes_of_one_workspace_share_files_and_neither_processes_nor_their_limit() {
    let Some(host) = support::host() else { return };
    let bounded = host.sandbox().enforced().processes != Some("rlimit");
    if !support::has("a pids controller", bounded) {
        return;
    }
    let files = MountedFiles::new(&host, "/workspace", MIB);
    let script = |own: u8, other: u8| {
        Program::sh(&format!(
            "for n in 1 2 3 4 5 6; do sleep 60 & done; touch begun{own}; \
             while [ ! -e begun{other} ]; do sleep 0.01; done; \
             ls -d /proc/[0-9]* | wc -l; touch seen{own}; \
             while [ ! -e seen{other} ]; do sleep 0.01; done"
        ))
        .limits(|limits| limits.processes_max = 9)
    };
    let both = std::thread::scope(|scope| {
        let other = scope.spawn(|| host.run_over(&files, script(1, 2)));
        [host.run_over(&files, script(2, 1)), other.join().unwrap()]
    });
    for report in both {
        // The init, the shell, six that sleep, `ls` and `wc`.
        let seen: u32 = lines_of(&report)[0].parse().unwrap();
        assert!((9..=10).contains(&seen), "{seen} processes");
    }
    assert_eq!(processes_of(files.host_id().id()), [""; 0]);
}

#[test]
fn a_mount_that_cannot_be_attached_is_a_failure_that_names_it() {
    let Some(host) = support::host() else { return };
    let files = MountedFiles::new(&host, "/workspace", MIB);
    let mut mounts = files.mounts();
    mounts.tmp = fs::File::open("/dev/null").unwrap().into();
    let failure = host.try_run_mounts(files.host_id(), mounts, Program::sh(":")).unwrap_err();
    assert_eq!(failure.to_string(), "sandbox: attach workspace /tmp: EINVAL");
    let report = host.run_over(&files, Program::sh(":"));
    assert_eq!(report.outcome, Outcome::Exited { code: 0 });
}
