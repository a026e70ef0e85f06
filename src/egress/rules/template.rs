//! Text of a rule with places for secrets.

use zeroize::Zeroizing;

/// Text with `{{secret.NAME}}` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleTemplate(Vec<RuleTemplatePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum RuleTemplatePart {
    Text(String),
    Secret(String),
}

impl RuleTemplate {
    /// Parses `text`, or returns why it is no template.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let wrong = "want {{secret.NAME}} for a secret";
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, opened)) = rest.split_once("{{") {
            let (inner, behind) = opened.split_once("}}").ok_or(wrong)?;
            let name = inner.strip_prefix("secret.").ok_or(wrong)?;
            if !cofferdam_core::is_secret_name(name) {
                return Err(wrong);
            }
            if !before.is_empty() {
                parts.push(RuleTemplatePart::Text(before.to_owned()));
            }
            parts.push(RuleTemplatePart::Secret(name.to_owned()));
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(RuleTemplatePart::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// The names of the secrets in it.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            RuleTemplatePart::Secret(name) => Some(name.as_str()),
            RuleTemplatePart::Text(_) => None,
        })
    }

    /// The text with the values that `value_of` returns. Fails with the first error of that.
    pub fn render<'v, E>(
        &self,
        value_of: impl Fn(&str) -> Result<&'v str, E>,
    ) -> Result<Zeroizing<String>, E> {
        let mut texts: Vec<&str> = Vec::with_capacity(self.0.len());
        for part in &self.0 {
            texts.push(match part {
                RuleTemplatePart::Text(text) => text.as_str(),
                RuleTemplatePart::Secret(name) => value_of(name)?,
            });
        }
        // Of the final size at once: a text that grows leaves copies.
        let mut rendered =
            Zeroizing::new(String::with_capacity(texts.iter().map(|text| text.len()).sum()));
        texts.iter().for_each(|text| rendered.push_str(text));
        Ok(rendered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_text_with_names_of_secrets() {
        for (text, names, rendered) in [
            ("", vec![], ""),
            ("plain } { text }}", vec![], "plain } { text }}"),
            ("Bearer {{secret.a}}", vec!["a"], "Bearer <a>"),
            ("{{secret.a}}:{{secret.b_1}}!", vec!["a", "b_1"], "<a>:<b_1>!"),
        ] {
            let template = RuleTemplate::parse(text).unwrap();
            assert_eq!(template.secrets().collect::<Vec<_>>(), names);
            let value_of = |name: &str| match name {
                "a" => Ok::<_, ()>("<a>"),
                _ => Ok("<b_1>"),
            };
            assert_eq!(template.render(value_of).unwrap().as_str(), rendered);
        }
        assert_eq!(
            RuleTemplate::parse("{{secret.a}}").unwrap().render(|_| Err::<&str, _>(7)),
            Err(7)
        );
    }

    #[test]
    fn other_braces_are_refused() {
        for text in [
            "{{a}}",
            "{{secret.}}",
            "{{ secret.a }}",
            "{{secret.a",
            "{{env.A}}",
            "{{secret.a-b}}",
            "{{{secret.a}}}",
        ] {
            assert!(RuleTemplate::parse(text).is_err(), "{text}");
        }
    }
}
