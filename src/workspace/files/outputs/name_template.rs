//! The names of artifacts that outputs are saved as.

use std::ffi::OsStr;
use std::path::Path;

use crate::workspace::error::EngineError;

/// How the name of an artifact is made of the path of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameTemplate(Vec<TemplatePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Path,
    Name,
    Stem,
    Ext,
    ExecId,
}

impl NameTemplate {
    /// The template that `text` means. Without a placeholder it is a prefix of the path.
    ///
    /// # Errors
    /// It has an unknown placeholder, or a brace without its counterpart.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            parts.push(TemplatePart::Text(before.to_owned()));
            let (name, after) = behind.split_once('}').unwrap_or((behind, ""));
            parts.push(match name {
                "path" => TemplatePart::Path,
                "name" => TemplatePart::Name,
                "stem" => TemplatePart::Stem,
                "ext" => TemplatePart::Ext,
                "exec_id" => TemplatePart::ExecId,
                _ => {
                    let words = "want only {path}, {name}, {stem}, {ext} and {exec_id}";
                    return Err(EngineError::invalid("name_template", words));
                }
            });
            if !behind.contains('}') {
                return Err(EngineError::invalid("name_template", "a brace is not closed"));
            }
            rest = after;
        }
        let is_prefix = parts.is_empty();
        parts.push(TemplatePart::Text(rest.to_owned()));
        if is_prefix {
            parts.push(TemplatePart::Path);
        }
        Ok(Self(parts))
    }

    /// The name of the artifact for the file at `path`, in a workspace with the label `exec_id`.
    pub fn name(&self, path: &str, exec_id: &str) -> String {
        let name = path.rsplit('/').next().unwrap_or_default();
        let stem = Path::new(name).file_stem().and_then(OsStr::to_str).unwrap_or_default();
        // With its dot.
        let ext = name.get(stem.len()..).unwrap_or_default();
        let text = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Path => path.to_owned(),
            TemplatePart::Name => name.to_owned(),
            TemplatePart::Stem => stem.to_owned(),
            TemplatePart::Ext => ext.to_owned(),
            TemplatePart::ExecId => exec_id.to_owned(),
        };
        self.0.iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_of_the_path_and_the_label() {
        let name =
            |template: &str, path: &str| NameTemplate::parse(template).unwrap().name(path, "job 1");
        for (template, path, wanted) in [
            ("", "out/a.txt", "out/a.txt"),
            ("pre/", "out/a.txt", "pre/out/a.txt"),
            ("x}", "a", "x}a"),
            ("{path}", "out/a.txt", "out/a.txt"),
            ("{exec_id}/{name}", "out/a.txt", "job 1/a.txt"),
            ("{stem}-v{ext}", "out/a.tar.gz", "a.tar-v.gz"),
            ("{stem}|{ext}", "out/.bashrc", ".bashrc|"),
            ("{stem}|{ext}", "Makefile", "Makefile|"),
            ("{stem}|{ext}", "a.", "a|."),
            ("{name}{name}", "d/é", "éé"),
        ] {
            assert_eq!(name(template, path), wanted, "{template} {path}");
        }
        for template in ["{", "{}", "{Path}", "a{x}", "{name", "{{name}}", "{ name }", "{path}{"] {
            let error = NameTemplate::parse(template).unwrap_err();
            assert_eq!(error.details["path"], "name_template", "{template}");
        }
    }
}
