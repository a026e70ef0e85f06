//! The values of code, as clients get them. A hostile program may have written what its kernel says of
//! them.

use super::answer::ResultView;
use crate::workspace::files::locate;
use crate::workspace::helpers::constants::DIR_OUT;
use crate::workspace::kernels::CodeResult;
use crate::workspace::service::live::LiveWorkspace;
use cofferdam_core::weakened::{self, Wall};
use cofferdam_tree::files::get;

/// Forms of one value.
const RESULTS_MAX: usize = 16;
/// The types of values that are texts.
const TEXT_TYPES: [&str; 3] = ["text/plain", "text/html", "application/json"];
/// The types of values that are files.
const IMAGE_TYPES: [&str; 3] = ["image/png", "image/jpeg", "image/svg+xml"];

/// The forms of a value that are what they say: texts, and images that are files below the directory of
/// results.
pub fn judge(live: &LiveWorkspace, results: Vec<CodeResult>) -> Vec<ResultView> {
    results.into_iter().take(RESULTS_MAX).filter_map(|result| view(live, result)).collect()
}

fn view(live: &LiveWorkspace, result: CodeResult) -> Option<ResultView> {
    let CodeResult { mime_type, text, file } = result;
    let is_one_of = |types: &[&str]| types.contains(&mime_type.as_str());
    match (text, file) {
        (Some(text), None) if is_one_of(&TEXT_TYPES) => {
            Some(ResultView { mime_type, text: Some(text), path: None, size_bytes: None })
        }
        (None, Some(name)) if is_one_of(&IMAGE_TYPES) => {
            let (path, bytes) = image(live, &name)?;
            Some(ResultView { mime_type, text: None, path: Some(path), size_bytes: Some(bytes) })
        }
        _ => None,
    }
}

/// The path and the size of an image, if a client can read it there.
fn image(live: &LiveWorkspace, name: &str) -> Option<(String, u64)> {
    let is_name = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if !is_name && !weakened::lacks(Wall::Results) {
        return None;
    }
    let path = format!("{DIR_OUT}/results/{name}");
    let bytes = live.with_root(|root| {
        let location = locate(root, "path", &path).ok()?;
        // A link may lead to another file of the workspace, which is no result.
        let opened = get(root, &location).ok().filter(|opened| opened.location == location)?;
        Some(opened.bytes)
    })?;
    Some((path, bytes))
}
