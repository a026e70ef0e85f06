//! How long runs are kept.

use std::time::Duration;

use super::scene::{exists, scene, wait_ended, wait_for};
use crate::case::service::{CaseRunStatus, CaseRuns, CaseRunsError};

#[test]
fn an_ended_run_is_removed_after_the_retention_and_a_live_one_is_not() {
    let scene = scene();
    let service = scene.service();
    let kept = scene.submit(&service, "t", 1);
    assert_eq!(wait_ended(&service, "t", &kept).status, CaseRunStatus::Done);
    drop(service);

    scene.script.hold();
    let service = scene.service_with(|settings| settings.retention = Some(Duration::from_secs(1)));
    let live = scene.submit(&service, "t", 1);
    scene.script.wait_begun(2);
    wait_for(|| service.view("t", &kept).err() == Some(CaseRunsError::NotFound));
    wait_for(|| !exists(&scene.store().join("cases").join(&kept)));
    assert_eq!(service.view("t", &live).unwrap().status, CaseRunStatus::Running);
    assert_eq!(scene.stored(), [live]);
    scene.script.release_all();
}

#[test]
fn a_service_without_a_retention_keeps_its_runs() {
    let scene = scene();
    let service = scene.service();
    let id = scene.submit(&service, "t", 1);
    wait_ended(&service, "t", &id);
    drop(service);
    let service = scene.service();
    assert_eq!(service.view("t", &id).unwrap().status, CaseRunStatus::Done);
}
