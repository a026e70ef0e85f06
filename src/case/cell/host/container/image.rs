//! The image that a Cell names: found or fetched, and its variables.

use serde::Deserialize;

use super::call::call;
use super::engine::{ContainerEngine, EngineKind, unavailable};
use crate::case::cell::error::ExecError;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// An image of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerImage {
    /// Its id, which means the same as long as the image is there.
    pub(super) id: String,
    /// Its variables, each as `NAME=value`.
    pub(super) variables: Vec<String>,
}

/// An image as both engines describe it.
#[derive(Debug, Deserialize)]
struct DescribedImage {
    #[serde(rename = "Id")]
    id: String,
    #[serde(rename = "Config")]
    config: Option<DescribedConfig>,
}

#[derive(Debug, Deserialize)]
struct DescribedConfig {
    #[serde(rename = "Env")]
    variables: Option<Vec<String>>,
}

impl ContainerImage {
    /// The image `name`. It is fetched if the engine does not have it.
    ///
    /// # Errors
    /// The engine does not run, or cannot fetch the image.
    pub(super) fn find(
        engine: &ContainerEngine,
        name: &str,
        deadline: Deadline,
        cancel: &CancelToken,
    ) -> Result<Self, ExecError> {
        if name.starts_with('-') {
            // It would be an option of the engine.
            return Err(ExecError::failed("image", format!("{name:?} is no name of an image")));
        }
        let call = |words: &[String]| call(&engine.program, words, deadline, Some(cancel));
        let version = call(&engine.kind.version())?;
        if !version.status.success() {
            let words = format!("{} does not run: {}", engine.kind.program(), version.tail);
            return Err(unavailable(&words));
        }
        let inspect = EngineKind::inspect_image(name);
        let mut described = call(&inspect)?;
        if !described.status.success() {
            let pulled = call(&EngineKind::pull(name))?;
            if !pulled.status.success() {
                let words = format!("the container image {name:?} cannot be fetched");
                return Err(ExecError::failed("image", words).with("tail", pulled.tail));
            }
            described = call(&inspect)?;
        }
        Self::described(&described.stdout).ok_or_else(|| {
            let words = format!("the engine does not describe the container image {name:?}");
            ExecError::failed("image", words).with("tail", described.tail)
        })
    }

    fn described(text: &[u8]) -> Option<Self> {
        let images: Vec<DescribedImage> = serde_json::from_slice(text).ok()?;
        let DescribedImage { id, config } = images.into_iter().next()?;
        let variables = config.and_then(|config| config.variables).unwrap_or_default();
        Some(Self { id, variables })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_read_as_either_engine_describes_it() {
        let variables = vec!["A=1".to_owned()];
        for (text, wanted) in [
            (r#"[{"Id": "i", "Config": {"Env": ["A=1"]}, "Other": 1}]"#, Some(variables)),
            (r#"[{"Id": "i", "Config": {"Env": null}}]"#, Some(Vec::new())),
            (r#"[{"Id": "i", "Config": null}]"#, Some(Vec::new())),
            (r#"[{"Id": "i"}]"#, Some(Vec::new())),
            ("[]", None),
            ("", None),
        ] {
            let wanted = wanted.map(|variables| ContainerImage { id: "i".to_owned(), variables });
            assert_eq!(ContainerImage::described(text.as_bytes()), wanted, "{text}");
        }
    }
}
