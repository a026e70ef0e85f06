//! Workspaces that are kept, saved while hostile programs write, and restored by another service.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use cofferdam_test_server::service::{Service, Setup, wait_until};
use nix::unistd::{SysconfVar, sysconf};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::forks::numbers;
use crate::Unexercised;
use crate::engine::{EngineClient, PeakMemory, SOON, Workspace, promptly};
use crate::probe::script;
use crate::target::{Own, Target};

/// How much more memory a save may take, and how much CPU time: the clock would measure other programs too.
const GROWTH_MIB: u64 = 16;
const SAVE_CPU_MAX: Duration = Duration::from_secs(5);
/// The entries that a workspace may have, and those that a program tries to make.
const INODES: u64 = 6_000;
const TRIED: u64 = 8_000;
/// Kills of the service while a program writes.
const KILLS: usize = 2;
/// The same without a wall: a save that is not of one moment is torn by chance only, in about every third round.
const WEAKENED_KILLS: usize = 30;

/// A service whose workspaces outlive it.
struct LastingService {
    service: Service,
    directory: TempDir,
}

fn setup(own: &Own, directory: &TempDir, save_every: &str) -> Setup {
    let setup = own.another().env("ENGINE_STORE_DIR", directory.path().join("engine"));
    setup.env("ENGINE_SAVE_EVERY", save_every).env("STANDBY_MAX", "0").env("JOBS", "off")
}

impl LastingService {
    fn start(own: &Own, save_every: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let service = setup(own, &directory, save_every).start();
        Self { service, directory }
    }

    fn client(&self) -> EngineClient {
        EngineClient::new(self.service.address, String::new(), None)
    }

    /// Kills the service and starts another over the same directory.
    fn kill_and_start(self, own: &Own, save_every: &str) -> Self {
        let Self { mut service, directory } = self;
        service.kill();
        Self { service: setup(own, &directory, save_every).start(), directory }
    }
}

/// The path of a new workspace that outlives its service.
fn create(client: &EngineClient, more: &Value) -> String {
    let mut body = json!({"policy": {"persist": true}, "limits": {"memory_mb": 600}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let workspace = client.create(&body);
    let path = workspace.path.clone();
    // It is not deleted when this ends.
    std::mem::forget(workspace);
    path
}

fn save(workspace: &Workspace<'_>) {
    let saved = workspace.post("/save", &json!({}));
    assert_eq!(saved.status, 200, "{}", saved.json());
}

/// What a program sees of its files, but for sockets and times.
const SEEN: &str = "cd /; find workspace/work tmp -path '*/churn*' -o -type s \
    -o -type f -printf '%p %m %U %n %s\\n' -o -printf '%p %y %m %U %l\\n' 2>/dev/null | sort";
/// What it must not see.
const HARMFUL: &str = "find /workspace /tmp -mindepth 1 \\( -type b -o -type c -o -perm /6000 -o ! -uid 10001 \\) 2>/dev/null || :";

/// Asserts that the store holds files and directories of the service only.
fn assert_plain(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let (path, metadata) =
            entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
        let facts = (metadata.uid(), metadata.mode() & 0o7077);
        assert_eq!(facts, (0, 0), "{}", path.display());
        assert!(metadata.is_dir() || metadata.is_file(), "{}", path.display());
        if metadata.is_dir() {
            assert_plain(&path);
        }
    }
}

pub fn harmless_trees(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    target.engine()?;
    let lasting = LastingService::start(own, "100ms");
    let client = lasting.client();
    let path = create(&client, &json!({}));
    let workspace = client.at(&path);
    let outside = own.sentinel.directory.path().to_str().unwrap().to_owned();
    let churn = "cd work; mkdir churn; echo up; while :; do mkdir churn/d; echo x >churn/d/f; mv churn/d churn/e
        ln churn/e/f churn/g; ln -sfn ../d churn/l; mkfifo churn/p; mv churn/e churn/l2; rm -rf churn/*; done 2>/dev/null";
    workspace.start_sh(churn, "churn");
    let made = workspace
        .run(&json!({"cmd": "python3", "args": ["-c", script("saved_tree.py"), outside], "timeout_ms": 20_000}));
    assert_eq!((&made["exit_code"], &made["stdout"]), (&json!(0), &json!("made\n")), "{made}");
    let seen = workspace.sh(SEEN);
    save(&workspace);
    let lasting = lasting.kill_and_start(own, "1h");
    let client = lasting.client();
    let workspace = client.at(&path);
    assert_eq!(workspace.sh(SEEN), seen);
    assert_eq!(workspace.sh(HARMFUL), "");
    let outcome = workspace
        .sh("cat work/secret work/up/etc/shadow 2>/dev/null || echo refused; cat /tmp/kept");
    assert_eq!(outcome, "refused\nkept\n");
    assert_plain(&lasting.directory.path().join("engine"));
    own.sentinel.assert_intact();
    assert_eq!(client.ask("DELETE", &format!("{path}?purge=true"), b"").status, 200);
    Ok(())
}

pub fn writers_during_saves(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    target.engine()?;
    let mut lasting = LastingService::start(own, "50ms");
    let path = create(&lasting.client(), &json!({}));
    let mut last = 0;
    let is_weakened = std::env::var_os("HOSTILE_WITHOUT").is_some();
    for round in 0..if is_weakened { WEAKENED_KILLS } else { KILLS } {
        let client = lasting.client();
        let workspace = client.at(&path);
        let writer =
            workspace.start(&json!({"cmd": "python3", "args": ["-c", script("writer.py")]}));
        wait_until("the writer", SOON, || workspace.get(&writer).json()["lines"] == 1);
        let saved_at = || workspace.get("").json()["saved_at"].clone();
        // One that ends may have begun before the writer; the next one has not.
        for _ in 0..2 {
            let before = saved_at();
            wait_until("a save", SOON, || {
                // A save is due after a change by request.
                assert!(workspace.ask("PUT", "/files?path=out/change", b"x").status < 300);
                saved_at() != before
            });
        }
        lasting = lasting.kill_and_start(own, "50ms");
        let client = lasting.client();
        let [a, b, z, written, mapped] = numbers(&client.at(&path));
        let in_order = a >= b && b >= z && z >= written && written >= mapped && mapped + 1 >= a;
        assert!(in_order, "round {round}: {a} {b} {z} {written} {mapped}");
        last = a;
    }
    assert!(last > 0, "nothing was written");
    assert_eq!(lasting.client().ask("DELETE", &format!("{path}?purge=true"), b"").status, 200);
    Ok(())
}

/// The CPU time of all threads of a process so far.
fn cpu_time(pid: i32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Behind the name, which may contain anything: the state, ten numbers, and the ticks of both modes.
    let numbers = stat.rsplit(')').next().unwrap().split_whitespace();
    let ticks: u64 = numbers.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    let per_second = sysconf(SysconfVar::CLK_TCK).unwrap().unwrap();
    Duration::from_millis(ticks * 1000 / u64::try_from(per_second).unwrap())
}

pub fn large_trees(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    target.engine()?;
    let lasting = LastingService::start(own, "1h");
    let client = lasting.client();
    let path = create(&client, &json!({"max_inodes": INODES}));
    let workspace = client.at(&path);
    save(&workspace);
    let script = script("large_tree.py");
    let body =
        json!({"cmd": "python3", "args": ["-c", script, TRIED.to_string()], "timeout_ms": 60_000});
    let made = workspace.run(&body);
    let count: u64 =
        made["stdout"].as_str().unwrap().trim().parse().unwrap_or_else(|_| panic!("{made}"));
    assert!(count > INODES / 2 && count <= INODES, "{count} entries");
    let peak = PeakMemory::of(&lasting.service);
    let before = cpu_time(lasting.service.pid());
    save(&workspace);
    let used = cpu_time(lasting.service.pid()).saturating_sub(before);
    assert!(used < SAVE_CPU_MAX, "{used:?}");
    peak.assert_grew_at_most(GROWTH_MIB);
    let kept = client.ask("DELETE", &path, b"");
    assert_eq!((kept.status, &kept.json()["persisted"]), (200, &json!(true)));
    let woken = promptly("a wake", || workspace.get("/stat?path=work/sparse"));
    assert_eq!((woken.status, &woken.json()["bytes"]), (200, &json!(1_u64 << 40)));
    assert_eq!(workspace.sh("stat -c %h work/farm0 | grep -vx 1 | wc -l"), "1\n");
    peak.assert_grew_at_most(2 * GROWTH_MIB);
    assert_eq!(client.ask("DELETE", &format!("{path}?purge=true"), b"").status, 200);
    Ok(())
}
