//! Who may use the files of a workspace.

use super::*;

#[test]
fn whoever_freezes_is_in_alone_and_who_only_looks_does_not_wait() {
    let trees = FakeTrees::default();
    let service = service_of(settings(), &trees);
    let view = create(&service, "a", &json!({})).unwrap();
    let workspace = service.reaping.registry.find(&"a".into(), id(&view)).unwrap();
    let doors = workspace.doors();
    let sharing = (doors.share(), doors.share());
    assert!(doors.enter_alone(Deadline::after(Duration::from_millis(5))).is_none());
    // A caller that gave up does not block the next one.
    drop((doors.share(), sharing));
    let alone = doors.enter_alone(Deadline::after(Duration::ZERO)).unwrap();
    trees.used_bytes.store(MIB / 2, Ordering::Relaxed);
    assert_eq!(doors.usage().unwrap().disk.used_bytes, 0, "as it was measured last");
    assert!(doors.try_share().is_none() && !doors.is_wanted());
    thread::scope(|scope| {
        let sharing = scope.spawn(|| drop(doors.share()));
        wait_until("the other waits", || doors.is_wanted());
        assert!(!sharing.is_finished());
        drop(alone);
        sharing.join().unwrap();
    });
    assert_eq!(doors.usage().unwrap().disk.used_bytes, MIB / 2);
    // Newcomers wait behind one who waits to be in alone.
    let first = doors.share();
    thread::scope(|scope| {
        let alone =
            scope.spawn(|| doors.enter_alone(Deadline::after(Duration::from_secs(20))).is_some());
        wait_until("it waits", || doors.is_wanted());
        let newcomer = scope.spawn(|| drop(doors.share()));
        assert!(!newcomer.is_finished());
        drop(first);
        assert!(alone.join().unwrap());
        newcomer.join().unwrap();
    });
}
