//! Tries what this host can do for workspaces, besides the controls of their sandboxes.

use std::path::Path;

use super::trials::{Enforcement, ProbeResult, tried};
use crate::layers::error::LayerError;
use crate::layers::features::LayerFeatures;
use crate::layers::host::LayerHost;
use crate::pool::host_id::HostId;
use cofferdam_core::SetupFailure;

/// Tries each feature, with files that belong to `host_id`, and images in `images` or the nearest directory
/// above it.
pub(super) fn features(host_id: &HostId, images: &Path) -> Vec<ProbeResult> {
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
    ]
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

fn found(name: &'static str, status: Enforcement, reason: &str) -> ProbeResult {
    ProbeResult { name, status, reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

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
