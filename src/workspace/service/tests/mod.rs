//! The service over file systems that are only counted.

mod doors;
mod merges;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::live::WorkspaceProgram;
use super::*;
use crate::config::{EngineMaxima, RequestRange, RequestRanges, TokenMaxima};
use crate::executor::{Capabilities, MountedView};
use crate::workspace::trees::{
    ForkKind, FrozenTree, PlainProgram, ReadCall, TreeMaker, TreeSandbox, TreeSettings, TreeUsage,
    WorkspaceTree,
};
use cofferdam_core::WorkspacePath;
use cofferdam_core::json::parse_object;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::sync::retained::Retained;
use cofferdam_sandbox::engine::DiskUsage;
use cofferdam_tree::{Owner, StopCheck, TreeDigest};
use serde_json::{Value, json};

/// Makes file systems that hold as many bytes as the test says.
#[derive(Debug, Clone, Default)]
struct FakeTrees {
    /// The bytes that every tree holds.
    used_bytes: Arc<AtomicU64>,
    made: Arc<AtomicUsize>,
    alive: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
    can_merge: Arc<AtomicBool>,
    merge_looks: Arc<AtomicUsize>,
    slow: Option<Duration>,
}

#[derive(Debug)]
struct FakeTree {
    root: OwnedFd,
    settings: TreeSettings,
    of: FakeTrees,
}

impl TreeMaker for FakeTrees {
    fn make(&self, settings: TreeSettings) -> Result<Box<dyn WorkspaceTree>, EngineError> {
        if let Some(slow) = self.slow {
            thread::sleep(slow);
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        if self.fails.load(Ordering::Relaxed) {
            return Err(EngineError::new(EngineCode::SandboxFailed, "no mounts"));
        }
        self.alive.fetch_add(1, Ordering::Relaxed);
        let root = std::fs::File::open("/").unwrap().into();
        Ok(Box::new(FakeTree { root, settings, of: self.clone() }))
    }

    fn fork_kind(&self) -> ForkKind {
        ForkKind::Copy
    }

    fn controls(&self) -> Capabilities {
        Capabilities::default()
    }
}

/// Frozen files without layers.
#[derive(Debug)]
struct FakeFrozenTree(FakeTrees);

impl FrozenTree for FakeFrozenTree {
    fn digest(&self, _stop: StopCheck<'_>) -> Result<TreeDigest, EngineError> {
        Ok(TreeDigest { sha256: [0; 32], files: 0, bytes: 0 })
    }

    fn read(&self, _call: &mut ReadCall<'_>) -> Result<(), EngineError> {
        Err(EngineError::new(EngineCode::SandboxFailed, "no files"))
    }

    fn fork(&self, settings: TreeSettings) -> Result<Box<dyn WorkspaceTree>, EngineError> {
        self.0.make(settings)
    }

    fn charge_layers(
        &self,
        _charge: &mut dyn FnMut(u64, bool) -> Result<Retained, EngineError>,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    fn charges(&self) -> Retained {
        Retained::default()
    }
}

impl WorkspaceTree for FakeTree {
    fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn owner(&self) -> Owner {
        Owner { uid: 0, gid: 0 }
    }

    fn view(&self, _: WorkspacePath, _: u64) -> Result<MountedView, EngineError> {
        Err(EngineError::new(EngineCode::SandboxFailed, "no mounts"))
    }

    fn discard_prepared(&self) -> bool {
        true
    }

    fn sandbox(
        &self,
        _path: WorkspacePath,
        _own_bytes_max: u64,
        _plain: Option<PlainProgram<'_>>,
    ) -> Result<Box<dyn TreeSandbox>, EngineError> {
        Err(EngineError::new(EngineCode::SandboxFailed, "no mounts"))
    }

    fn usage(&self) -> Result<TreeUsage, EngineError> {
        let used_bytes = self.of.used_bytes.load(Ordering::Relaxed);
        let TreeSettings { bytes, inodes, .. } = self.settings;
        let disk =
            DiskUsage { used_bytes, limit_bytes: bytes, used_inodes: 8, limit_inodes: inodes };
        Ok(TreeUsage { disk, frozen_bytes: 0 })
    }

    fn shares_host_id(&self) -> bool {
        false
    }

    fn freeze(&mut self, stop: StopCheck<'_>) -> Result<Arc<dyn FrozenTree>, EngineError> {
        self.copy(stop)
    }

    fn copy(&self, _stop: StopCheck<'_>) -> Result<Arc<dyn FrozenTree>, EngineError> {
        Ok(self.frozen())
    }

    fn frozen(&self) -> Arc<dyn FrozenTree> {
        Arc::new(FakeFrozenTree(self.of.clone()))
    }

    fn is_layered(&self) -> bool {
        false
    }

    fn can_merge(&self) -> bool {
        self.of.merge_looks.fetch_add(1, Ordering::Relaxed);
        self.of.can_merge.load(Ordering::Relaxed)
    }

    fn merge(&mut self, _stop: StopCheck<'_>) -> Result<(), EngineError> {
        self.of.can_merge.store(false, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for FakeTree {
    fn drop(&mut self) {
        self.of.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

const MIB: u64 = 1 << 20;

fn settings() -> EngineSettings {
    let range = |default, max| RequestRange { default, max };
    EngineSettings {
        maxima: EngineMaxima {
            workspaces: 10,
            disk_total_bytes: None,
            runs: 4,
            kernels: 1,
            store_bytes: MIB,
            sessions: 1,
            contexts: 1,
            snapshots: 1,
            input_bytes: MIB,
            artifact_bytes: MIB,
        },
        per_token: TokenMaxima::default(),
        requests: RequestRanges {
            disk_bytes: range(MIB, 8 * MIB),
            inodes: range(100, 1000),
            ttl_ms: range(3_600_000, 7_200_000),
            idle_ms: range(3_600_000, 7_200_000),
            run_timeout_ms: range(1000, 2000),
            session_timeout_ms: range(1000, 2000),
            memory_mb: range(64, 128),
            pids: range(8, 16),
            output_bytes: range(1024, 2048),
        },
        disk_total_bytes: 4 * MIB,
        session_keep: Duration::from_secs(60),
        interrupt_wait: Duration::from_secs(1),
        base_env: std::collections::BTreeMap::new(),
        store: None,
        network: Default::default(),
        parked_keep: Duration::from_secs(3600),
        save_every: Duration::from_secs(5),
    }
}

fn service_of(settings: EngineSettings, trees: &FakeTrees) -> WorkspaceService {
    WorkspaceService::start(settings, Box::new(trees.clone())).unwrap()
}

fn request(body: &Value) -> CreateRequest {
    parse_object(body.to_string().as_bytes()).unwrap()
}

fn create(service: &WorkspaceService, token: &str, body: &Value) -> Result<Value, EngineCode> {
    let made = service.create(&token.into(), request(body));
    made.map(|(view, _)| serde_json::to_value(view).unwrap()).map_err(|error| error.code)
}

/// Begins a program that `cancel` ends.
fn begin(
    workspace: &Arc<LiveWorkspace>,
    cancel: CancelToken,
) -> Result<WorkspaceProgram, EngineError> {
    let program = LiveProgram::of(&mut Watch::of(cancel))?;
    workspace.begin_program(&workspace.doors().share(), program)
}

fn id(view: &Value) -> &str {
    view["workspace_id"].as_str().unwrap()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "waited for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_workspace_is_seen_by_its_own_token_only_until_its_cleanup() {
    let trees = FakeTrees::default();
    let service = service_of(settings(), &trees);
    let body = json!({"exec_id": "e", "env": {"A": "secret"}, "policy": {"isolated": false}});
    let view = create(&service, "a", &body).unwrap();
    assert_eq!((&view["exec_id"], &view["status"]), (&json!("e"), &json!("active")));
    assert_eq!((&view["policy"]["isolated"], &view["env"]), (&json!(true), &json!(["A"])));
    assert!(!view.to_string().contains("secret"));
    let (a, b) = ("a".into(), "b".into());
    assert_eq!(service.view(&b, id(&view)).unwrap_err().code, EngineCode::WorkspaceNotFound);
    assert_eq!(
        service.cleanup(&b, id(&view), false).unwrap_err().code,
        EngineCode::WorkspaceNotFound
    );
    let query = WorkspaceQuery { limit: 10, ..WorkspaceQuery::default() };
    assert!(service.list(&b, &query).unwrap().workspaces.is_empty());
    assert_eq!(service.list(&a, &query).unwrap().workspaces.len(), 1);
    assert_eq!(service.view(&a, id(&view)).unwrap().workspace_id(), id(&view));
    let cleaned = service.cleanup(&a, id(&view), false).unwrap();
    assert_eq!((cleaned.workspace_id.as_str(), cleaned.persisted), (id(&view), false));
    assert_eq!(
        service.cleanup(&a, id(&view), false).unwrap_err().code,
        EngineCode::WorkspaceNotFound
    );
    assert_eq!(trees.alive.load(Ordering::Relaxed), 0);
    assert_eq!((service.metrics().workspaces, service.metrics().disk_bytes), (0, 0));
}

#[test]
fn a_list_has_the_newest_first_and_its_pages_have_each_workspace_once() {
    let service = service_of(settings(), &FakeTrees::default());
    let made: Vec<Value> = (0..5)
        .map(|n| create(&service, "a", &json!({"exec_id": if n == 2 { "two" } else { "x" }})))
        .collect::<Result<_, _>>()
        .unwrap();
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let query = WorkspaceQuery { limit: 2, before, ..WorkspaceQuery::default() };
        let page = service.list(&"a".into(), &query).unwrap();
        seen.extend(page.workspaces.iter().map(|view| view.workspace_id().to_owned()));
        let Some(cursor) = page.next_cursor else { break };
        before = Some(cursor.parse().unwrap());
    }
    let newest_first: Vec<&str> = made.iter().rev().map(id).collect();
    assert_eq!(seen, newest_first);
    let query =
        WorkspaceQuery { limit: 9, exec_id: Some("two".into()), ..WorkspaceQuery::default() };
    let found = service.list(&"a".into(), &query).unwrap();
    assert_eq!(found.workspaces.len(), 1);
    let parked = WorkspaceQuery { status: Some(WorkspaceStatus::Parked), limit: 9, ..query };
    assert!(service.list(&"a".into(), &parked).unwrap().workspaces.is_empty());
}

#[test]
fn parallel_acquires_make_one_workspace() {
    let trees = FakeTrees { slow: Some(Duration::from_millis(20)), ..FakeTrees::default() };
    let service = service_of(settings(), &trees);
    let (body, barrier) = (json!({"exec_id": "e", "acquire": true}), Barrier::new(8));
    let ids: Vec<(String, bool)> = thread::scope(|scope| {
        let acquire = || {
            barrier.wait();
            let (view, is_new) = service.create(&"a".into(), request(&body)).unwrap();
            (view.workspace_id().to_owned(), is_new)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(acquire)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(trees.made.load(Ordering::Relaxed), 1);
    assert!(ids.iter().all(|(id, _)| *id == ids[0].0), "{ids:?}");
    assert_eq!(ids.iter().filter(|(_, is_new)| *is_new).count(), 1);
    // Another token, another label and a plain create each make one.
    for (token, body) in [
        ("b", body.clone()),
        ("a", json!({"exec_id": "f", "acquire": true})),
        ("a", json!({"exec_id": "e"})),
    ] {
        assert_ne!(id(&create(&service, token, &body).unwrap()), ids[0].0);
    }
    assert_eq!(trees.made.load(Ordering::Relaxed), 4);
}

#[test]
fn a_failed_acquire_is_not_remembered_and_a_gone_workspace_is_not_acquired() {
    let trees = FakeTrees::default();
    let service = service_of(settings(), &trees);
    let body = json!({"exec_id": "e", "acquire": true});
    trees.fails.store(true, Ordering::Relaxed);
    assert_eq!(create(&service, "a", &body), Err(EngineCode::SandboxFailed));
    assert_eq!((service.metrics().workspaces, service.metrics().disk_bytes), (0, 0));
    trees.fails.store(false, Ordering::Relaxed);
    let first = create(&service, "a", &body).unwrap();
    service.cleanup(&"a".into(), id(&first), false).unwrap();
    let second = create(&service, "a", &body).unwrap();
    assert_ne!(id(&first), id(&second));
}

#[test]
fn all_workspaces_and_those_of_a_token_are_limited() {
    let mut settings = settings();
    settings.maxima.workspaces = 3;
    settings.per_token.workspaces = Some(2);
    let service = service_of(settings, &FakeTrees::default());
    let first = create(&service, "a", &json!({})).unwrap();
    create(&service, "a", &json!({})).unwrap();
    assert_eq!(create(&service, "a", &json!({})), Err(EngineCode::TokenLimit));
    create(&service, "b", &json!({})).unwrap();
    assert_eq!(create(&service, "b", &json!({})), Err(EngineCode::WorkspacesFull));
    service.cleanup(&"a".into(), id(&first), false).unwrap();
    create(&service, "b", &json!({})).unwrap();
}

#[test]
fn bytes_are_charged_as_used_and_with_a_program_as_they_may_become() {
    let trees = FakeTrees::default();
    trees.used_bytes.store(MIB / 2, Ordering::Relaxed);
    let service = service_of(settings(), &trees);
    let body = json!({"policy": {"max_disk_bytes": 2 * MIB}});
    let ids: Vec<String> =
        (0..3).map(|_| id(&create(&service, "a", &body).unwrap()).to_owned()).collect();
    assert_eq!(service.metrics().disk_bytes, 3 * MIB / 2);
    let find = |n: usize| service.reaping.registry.find(&"a".into(), &ids[n]).unwrap();
    let begin = |n: usize| begin(&find(n), CancelToken::new().unwrap());
    let first = begin(0).unwrap();
    assert_eq!(service.metrics().disk_bytes, 3 * MIB);
    let again = begin(0).unwrap();
    assert_eq!(service.metrics().disk_bytes, 3 * MIB, "its bytes are charged once");
    assert_eq!(begin(1).unwrap_err().code, EngineCode::WorkspacesFull);
    // What a request may write is charged while it lasts.
    let mut put = find(1).enter().unwrap();
    put.reserve(MIB).unwrap();
    assert_eq!(service.metrics().disk_bytes, 4 * MIB);
    assert_eq!(put.reserve(MIB / 2).map_err(|error| error.code), Err(EngineCode::WorkspacesFull));
    drop(put);
    drop((first, again));
    assert_eq!(service.metrics().disk_bytes, 3 * MIB / 2);
    // Never more than it can hold.
    find(1).enter().unwrap().reserve(100 * MIB).unwrap();
    trees.used_bytes.store(MIB, Ordering::Relaxed);
    drop(begin(0).unwrap());
    assert_eq!(service.metrics().disk_bytes, 2 * MIB);
}

#[test]
fn an_unused_workspace_ends_and_a_used_one_does_not() {
    let trees = FakeTrees::default();
    let service = service_of(settings(), &trees);
    let idle = |ms: u64| create(&service, "a", &json!({"idle_ms": ms})).unwrap();
    let (short, busy, running) = (idle(30), idle(30), idle(30));
    let find = |view| service.reaping.registry.find(&"a".into(), id(view));
    let using = find(&busy).unwrap().enter().unwrap();
    let program = begin(&find(&running).unwrap(), CancelToken::new().unwrap()).unwrap();
    wait_until("the end", || trees.alive.load(Ordering::Relaxed) == 2);
    assert!(find(&short).is_err());
    assert!(find(&busy).is_ok() && find(&running).is_ok());
    drop(program);
    wait_until("the end after the program", || find(&running).is_err());
    drop(using);
    wait_until("the end after the use", || trees.alive.load(Ordering::Relaxed) == 0);
    let ended = service.metrics().ended;
    assert!(ended.contains(&("idle", 3)), "{ended:?}");
}

#[test]
fn a_workspace_ends_at_its_ttl_with_all_its_programs_and_a_patch_sets_it_anew() {
    let service = service_of(settings(), &FakeTrees::default());
    let view = create(&service, "a", &json!({"ttl_ms": 3_600_000})).unwrap();
    let workspace = service.reaping.registry.find(&"a".into(), id(&view)).unwrap();
    let cancel = CancelToken::new().unwrap();
    let program = begin(&workspace, cancel.clone()).unwrap();
    let ended = thread::spawn(move || {
        let mut fds = [nix::poll::PollFd::new(cancel.as_fd(), nix::poll::PollFlags::POLLIN)];
        let ready = nix::poll::poll(&mut fds, nix::poll::PollTimeout::from(20_000_u16));
        drop(program);
        ready
    });
    let patch = |body: Value| {
        let patch: PatchRequest = parse_object(body.to_string().as_bytes()).unwrap();
        service.patch(&"a".into(), id(&view), &patch)
    };
    assert_eq!(patch(json!({"ttl_ms": 7_200_001})).unwrap_err().details["path"], "ttl_ms");
    let patched = serde_json::to_value(patch(json!({"idle_ms": 5000})).unwrap()).unwrap();
    assert_eq!((&patched["ttl_ms"], &patched["idle_ms"]), (&json!(3_600_000), &json!(5000)));
    patch(json!({"ttl_ms": 1})).unwrap();
    assert_eq!(ended.join().unwrap(), Ok(1), "the program was cancelled");
    wait_until("the end", || service.metrics().ended.contains(&("ttl", 1)));
    assert!(service.view(&"a".into(), id(&view)).is_err());
}

#[test]
fn a_cleanup_answers_when_the_programs_are_dead() {
    let service = service_of(settings(), &FakeTrees::default());
    let view = create(&service, "a", &json!({})).unwrap();
    let workspace = service.reaping.registry.find(&"a".into(), id(&view)).unwrap();
    let program = begin(&workspace, CancelToken::new().unwrap()).unwrap();
    let is_dead = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the cleanup", || workspace.is_over());
            is_dead.store(true, Ordering::SeqCst);
            drop(program);
        });
        service.cleanup(&"a".into(), id(&view), false).unwrap();
        assert!(is_dead.load(Ordering::SeqCst));
    });
    assert!(workspace.enter().is_err() && workspace.prolong(None, None).is_err());
}

#[test]
fn a_draining_service_makes_no_workspace() {
    let service = service_of(settings(), &FakeTrees::default());
    let view = create(&service, "a", &json!({})).unwrap();
    service.start_draining();
    assert_eq!(create(&service, "a", &json!({})), Err(EngineCode::EngineClosed));
    assert!(service.view(&"a".into(), id(&view)).is_ok());
}

#[test]
fn a_workspace_whose_files_leave_no_room_is_not_created() {
    let trees = FakeTrees::default();
    trees.used_bytes.store(MIB - 1000, Ordering::Relaxed);
    let service = service_of(settings(), &trees);
    assert_eq!(create(&service, "a", &json!({})), Err(EngineCode::WorkspaceDiskFull));
    assert_eq!((trees.alive.load(Ordering::Relaxed), service.metrics().workspaces), (0, 0));
}
