//! What is kept of a result.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::evaluation::result::EvaluationResult;

/// How often a byte of text may occur in JSON at most.
const ESCAPED_BYTES_MAX: usize = 6;
/// In how many places a text of output is: that of a test, and all of them together.
const PLACES: usize = 2;

/// The result as JSON of about `bytes_max` at most, besides its patch. Output is cut to that.
///
/// # Errors
/// It is no JSON.
pub fn bounded_json(
    result: &mut EvaluationResult,
    bytes_max: usize,
) -> Result<Vec<u8>, serde_json::Error> {
    let json = serde_json::to_vec(result)?;
    if json.len() <= bytes_max {
        return Ok(json);
    }
    let texts = result.test_results.len() + PLACES;
    let text_bytes_max = bytes_max / (PLACES * ESCAPED_BYTES_MAX * texts);
    let patch_bytes = result.agent_patch.as_ref().map_or(0, String::len);
    if patch_bytes.saturating_mul(PLACES) > bytes_max {
        // The file `patch` has it.
        result.agent_patch = None;
    }
    cut(&mut result.agent_output, text_bytes_max);
    cut(&mut result.test_output, text_bytes_max);
    for test in &mut result.test_results {
        test.truncated |= cut(&mut test.output, text_bytes_max);
    }
    serde_json::to_vec(result)
}

fn cut(text: &mut String, bytes_max: usize) -> bool {
    let total = text.len();
    if total <= bytes_max {
        return false;
    }
    let at = text.floor_char_boundary(bytes_max);
    text.truncate(at);
    text.push_str(&format!("\n... [truncated at {at} bytes, total {total}]"));
    true
}

/// The bytes of the patch; `None` without one.
pub fn patch_bytes(result: &EvaluationResult) -> Option<Vec<u8>> {
    let text = result.agent_patch.as_ref()?;
    let is_base64 = result.patch.as_ref().is_some_and(|patch| patch.encoding == "base64");
    if is_base64 { STANDARD.decode(text).ok() } else { Some(text.clone().into_bytes()) }
}
