//! Tries what this host can do for workspaces, besides the controls of their sandboxes.

use std::path::Path;

use super::trials::{Enforcement, ProbeResult, tried};
use crate::cgroup::{CgroupSupport, CgroupVersion};
use crate::layers::error::LayerError;
use crate::layers::features::LayerFeatures;
use crate::layers::host::LayerHost;
use crate::pool::host_id::HostId;
use cofferdam_core::SetupFailure;

/// The row about the files of evaluations.
pub(super) const EVALUATION_FILES: &str = "evaluation files";

/// Tries each feature, with files that belong to `host_id`, and images in `images` or the nearest directory
/// above it. `support` is what cgroups are good for here.
pub(super) fn features(
    host_id: &HostId,
    images: &Path,
    support: &CgroupSupport,
) -> Vec<ProbeResult> {
    let layers = match LayerHost::open(host_id) {
        Ok(layers) => layers,
        Err(error) => {
            let failure = match error {
                LayerError::Failed(failure) => failure,
                other => SetupFailure::from_words("file system", other.to_string()),
            };
            return vec![tried("workspaces", Enforcement::Missing, Err(failure))];
        }
    };
    let LayerFeatures { overlay, id_maps, id_ranges, .. } = layers.features();
    vec![
        tried("workspaces", Enforcement::Missing, Ok(())),
        forks(overlay),
        ids(id_maps, id_ranges),
        on_disk(layers.clone(), images),
        shared_sandbox(support),
    ]
}

/// Whether the programs of a workspace can share one sandbox.
fn shared_sandbox(support: &CgroupSupport) -> ProbeResult {
    let name = "shared sandbox";
    match (support.check_shared(), support.kill.by) {
        (Err(reason), _) => found(name, Enforcement::Missing, &reason),
        // A frozen group of version 1 dies when it is thawed.
        (Ok(()), Some(CgroupVersion::V1)) => {
            let words = "cgroup1: what a killed service leaves frozen dies at the next start";
            found(name, Enforcement::Enforced, words)
        }
        (Ok(()), _) => found(name, Enforcement::Enforced, "cgroups"),
    }
}

fn forks(overlay: &Result<(), String>) -> ProbeResult {
    let name = "workspace forks";
    match overlay {
        Ok(()) => found(name, Enforcement::Enforced, "overlay"),
        Err(reason) => found(name, Enforcement::Degraded, &format!("copy, not overlay: {reason}")),
    }
}

fn ids(maps: &Result<(), String>, ranges: &Result<(), String>) -> ProbeResult {
    let name = "workspace ids";
    match (maps, ranges) {
        (Ok(()), Ok(())) => found(name, Enforcement::Enforced, "mapped, one host uid each"),
        (Ok(()), Err(reason)) => {
            let reason = format!("mapped, one host uid each, only for uids 0 and 10001: {reason}");
            found(name, Enforcement::Enforced, &reason)
        }
        (Err(reason), _) => {
            let reason = format!("the forks of one workspace share its host uid: {reason}");
            found(name, Enforcement::Degraded, &reason)
        }
    }
}

fn on_disk(layers: LayerHost, images: &Path) -> ProbeResult {
    let name = "workspace on disk";
    let directory = images.ancestors().find(|path| path.is_dir());
    let Some(directory) = directory else {
        return found(name, Enforcement::Missing, "there is no directory for images");
    };
    match layers.with_images(directory).images() {
        Ok(()) => found(name, Enforcement::Enforced, "tried, on a loop device"),
        Err(reason) => found(name, Enforcement::Missing, reason),
    }
}

/// Where the files of evaluations would lie: on disk in images in `base`, or the nearest directory above it, or
/// else in memory.
pub(super) fn evaluation_files(host_id: &HostId, base: &Path) -> ProbeResult {
    let layers = match LayerHost::open(host_id) {
        Ok(layers) => layers,
        Err(error) => return found(EVALUATION_FILES, Enforcement::Missing, &error.to_string()),
    };
    let on_disk = on_disk(layers, base);
    match on_disk.status {
        Enforcement::Enforced => {
            found(EVALUATION_FILES, Enforcement::Enforced, "on disk, on loop devices")
        }
        _ => {
            let words = format!("in memory, which EVAL_MEMORY_MAX limits: {}", on_disk.reason);
            found(EVALUATION_FILES, Enforcement::Degraded, &words)
        }
    }
}

fn found(name: &'static str, status: Enforcement, reason: &str) -> ProbeResult {
    ProbeResult { name, status, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::ControlSupport;

    #[test]
    fn one_sandbox_for_a_workspace_needs_groups_that_kill_and_limit_memory_and_processes() {
        let by = |version| ControlSupport { by: Some(version), reason: None };
        let all = |version| CgroupSupport {
            memory: by(version),
            processes: by(version),
            kill: by(version),
            ..CgroupSupport::default()
        };
        let status = |support: &CgroupSupport| shared_sandbox(support).status;
        for version in [CgroupVersion::V1, CgroupVersion::V2] {
            assert_eq!(status(&all(version)), Enforcement::Enforced);
        }
        let missing = ControlSupport { by: None, reason: Some("not mounted".to_owned()) };
        for support in [
            CgroupSupport { memory: missing.clone(), ..all(CgroupVersion::V2) },
            CgroupSupport { processes: missing.clone(), ..all(CgroupVersion::V2) },
            CgroupSupport { kill: missing.clone(), ..all(CgroupVersion::V2) },
        ] {
            let ProbeResult { status, reason, .. } = shared_sandbox(&support);
            assert_eq!(status, Enforcement::Missing);
            assert!(
                reason.contains("needs cgroups") && reason.ends_with("not mounted"),
                "{reason}"
            );
        }
    }

    #[test]
    fn a_feature_that_the_host_lacks_is_told_with_what_happens_instead() {
        let without = || Err("step: EINVAL".to_owned());
        for (result, status, reason) in [
            (forks(&Ok(())), Enforcement::Enforced, "overlay"),
            (forks(&without()), Enforcement::Degraded, "copy, not overlay: step: EINVAL"),
            (ids(&Ok(()), &Ok(())), Enforcement::Enforced, "mapped, one host uid each"),
            (
                ids(&Ok(()), &without()),
                Enforcement::Enforced,
                "mapped, one host uid each, only for uids 0 and 10001: step: EINVAL",
            ),
            (
                ids(&without(), &without()),
                Enforcement::Degraded,
                "the forks of one workspace share its host uid: step: EINVAL",
            ),
        ] {
            assert_eq!((result.status, result.reason.as_str()), (status, reason));
        }
    }
}
