//! Workspaces on disk.

use std::time::{Duration, Instant};

use cofferdam_tree::StopCheck;
use nix::errno::Errno;

use super::support::*;
use crate::layers::error::LayerError;
use crate::layers::host::LayerHost;
use crate::layers::space::{DiskSpace, Storage};
use crate::layers::workspace_fs::WorkspaceFs;

const LARGE: DiskSpace = DiskSpace { bytes: 64 * MIB, inodes: 2_000 };

/// `None` if this host has no loop devices.
fn host() -> Option<(LayerHost, tempfile::TempDir)> {
    if !is_root() {
        return None;
    }
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let host = layers().clone().with_images(directory.path());
    if let Err(reason) = host.images() {
        eprintln!("SKIP: {reason}");
        return None;
    }
    Some((host, directory))
}

#[test]
fn an_image_has_the_limits_of_the_workspace_in_every_layer_and_no_name() {
    let Some((host, directory)) = host() else { return };
    let mut fs = host.create(LARGE, Storage::Disk, &host_id()).unwrap();
    let fill = |fs: &WorkspaceFs, name: &str, bytes: u64| {
        write(fs, name, &vec![1; usize::try_from(bytes).unwrap()])
    };
    fill(&fs, "workspace/half", LARGE.bytes / 2).unwrap();
    let used = fs.usage().unwrap().used_bytes;
    assert!((LARGE.bytes / 2..LARGE.bytes / 2 + MIB).contains(&used), "{used}");
    let chain = fs.freeze(StopCheck::never()).unwrap();
    let fork = host.fork(&chain, LARGE, Storage::Disk, &host_id()).unwrap();
    for fs in [&fs, &fork] {
        fill(fs, "workspace/most", LARGE.bytes / 2 - MIB).unwrap();
        assert_eq!(fill(fs, "workspace/more", 2 * MIB), Err(Errno::ENOSPC));
        assert!(fs.usage().unwrap().used_bytes <= LARGE.bytes);
        let mut made = 0;
        while write(fs, &format!("tmp/{made}"), b"").is_ok() {
            made += 1;
        }
        assert_eq!(fs.usage().unwrap().used_inodes, LARGE.inodes);
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "files with a name");
}

#[test]
fn the_loop_device_of_an_image_is_freed_with_the_workspace() {
    let Some((host, _directory)) = host() else { return };
    let device = |fs: &WorkspaceFs| {
        let number = nix::sys::stat::minor(status(fs, "workspace").unwrap().st_dev);
        format!("/sys/block/loop{number}/loop/backing_file")
    };
    let fs = host.create(LARGE, Storage::Disk, &host_id()).unwrap();
    let image = std::fs::read_to_string(device(&fs)).unwrap();
    let path = device(&fs);
    drop(fs);
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::read_to_string(&path).is_ok_and(|now| now == image) {
        assert!(Instant::now() < deadline, "{path} still has {image}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn layers_on_disk_are_merged_when_no_snapshot_needs_them() {
    let Some((host, _directory)) = host() else { return };
    let mut fs = host.create(LARGE, Storage::Disk, &host_id()).unwrap();
    write(&fs, "workspace/large", &vec![1; 8 << 20]).unwrap();
    write(&fs, "workspace/kept", b"kept").unwrap();
    drop(fs.freeze(StopCheck::never()).unwrap());
    remove(&fs, "workspace/large").unwrap();
    assert!(fs.usage().unwrap().used_bytes > 8 * MIB);
    fs.merge(StopCheck::never()).unwrap();
    assert!(fs.usage().unwrap().used_bytes < MIB);
    assert_eq!(read(&fs, "workspace/kept").unwrap(), "kept");
    wait_until_room(&fs, 60 * MIB);
}

fn wait_until_room(fs: &WorkspaceFs, bytes: u64) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while write(fs, "workspace/large", &vec![1; usize::try_from(bytes).unwrap()]).is_err() {
        assert!(Instant::now() < deadline, "{:?}", fs.usage());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn twenty_four_threads_make_workspaces_on_disk_at_once() {
    let Some((host, _directory)) = host() else { return };
    let make = || {
        let fs = host.create(LARGE, Storage::Disk, &host_id()).unwrap();
        write(&fs, "workspace/file", b"content").unwrap();
        fs
    };
    let made: Vec<WorkspaceFs> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..24).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(made.iter().all(|fs| read(fs, "workspace/file").as_deref() == Ok("content")));
}

#[test]
fn images_of_one_size_are_whole_and_have_an_identity_each() {
    let Some((host, _directory)) = host() else { return };
    let (mut identities, mut used) = (std::collections::BTreeSet::new(), Vec::new());
    // The first is made, the second makes what all but the first are copies of.
    for _ in 0..4 {
        let mut fs = host.create(LARGE, Storage::Disk, &host_id()).unwrap();
        write(&fs, "workspace/file", &vec![1; 100_000]).unwrap();
        let number = nix::sys::stat::minor(status(&fs, "workspace").unwrap().st_dev);
        used.push(fs.usage().unwrap());
        let chain = fs.freeze(StopCheck::never()).unwrap();
        let device = format!("/dev/loop{number}");
        let checked = std::process::Command::new("e2fsck").args(["-fn", &device]).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
        let superblock = std::fs::File::open(&device).unwrap();
        let mut uuid = [0; 16];
        std::os::unix::fs::FileExt::read_exact_at(&superblock, &mut uuid, 1024 + 0x68).unwrap();
        identities.insert(uuid);
        drop((fs, chain));
    }
    assert_eq!(identities.len(), 4);
    assert!(used.iter().all(|used_by| *used_by == used[0]), "{used:?}");
}

#[test]
fn without_a_directory_for_images_there_is_no_workspace_on_disk() {
    if !is_root() {
        return;
    }
    let made = layers().create(LARGE, Storage::Disk, &host_id()).map(drop);
    assert!(matches!(made, Err(LayerError::StorageUnavailable { .. })), "{made:?}");
}

/// Set to the directory for images in the process that is killed.
const KILLED: &str = "COFFERDAM_TEST_KILLED_WITH_IMAGES";

#[test]
fn a_killed_service_leaves_no_image_and_no_loop_device() {
    let Some((_, directory)) = host() else { return };
    if let Some(directory) = std::env::var_os(KILLED) {
        let host = layers().clone().with_images(directory.as_ref());
        let mut fs = host.create(LARGE, Storage::Disk, &host_id()).unwrap();
        fs.freeze(StopCheck::never()).unwrap();
        println!("made");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let name = "layers::tests::images::a_killed_service_leaves_no_image_and_no_loop_device";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(KILLED, directory.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(output).map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("made")), "the process made nothing");
    let images = || {
        let devices = std::fs::read_dir("/sys/block").unwrap();
        let files = devices.filter_map(|device| {
            std::fs::read_to_string(device.unwrap().path().join("loop/backing_file")).ok()
        });
        files.filter(|file| file.starts_with(directory.path().to_str().unwrap())).count()
    };
    assert_eq!(images(), 2, "a frozen layer and a top");
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while images() > 0 {
        assert!(Instant::now() < deadline, "{} images are left", images());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
