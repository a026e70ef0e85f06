//! When layers are merged.

use super::*;

#[test]
fn who_only_looks_at_a_workspace_does_not_keep_its_layers_from_being_merged() {
    let trees = FakeTrees::default();
    let service = service_of(settings(), &trees);
    let view = create(&service, "a", &json!({})).unwrap();
    let workspace = service.reaping.registry.find(&"a".into(), id(&view)).unwrap();
    trees.can_merge.store(true, Ordering::Relaxed);
    let look = workspace.doors().try_share().unwrap();
    service.merger.queue().offer(workspace.number);
    wait_until("the merger comes", || trees.merge_looks.load(Ordering::Relaxed) > 0);
    // It finds the look right after that.
    thread::sleep(Duration::from_millis(50));
    assert!(trees.can_merge.load(Ordering::Relaxed));
    drop(look);
    wait_until("the merge", || !trees.can_merge.load(Ordering::Relaxed));
}
