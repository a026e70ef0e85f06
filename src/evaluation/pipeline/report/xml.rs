//! The tags of an XML text: as much of XML as JUnit files have, without entities of their own.

/// Attributes of one tag.
const ATTRIBUTES_MAX: usize = 64;

/// A tag.
#[derive(Debug, PartialEq, Eq)]
pub enum Tag<'text> {
    /// `<name …>`.
    Open {
        /// Its name.
        name: &'text str,
        /// Its attributes as they are written.
        attributes: &'text str,
        /// Whether it ends itself: `<name/>`.
        is_empty: bool,
    },
    /// `</name>`.
    Close(&'text str),
}

/// The tags of a text in their order; what is between them is skipped.
#[derive(Debug)]
pub struct Tags<'text> {
    rest: &'text str,
}

impl<'text> Tags<'text> {
    /// Those of `text`.
    pub fn of(text: &'text str) -> Self {
        Self { rest: text }
    }

    /// The next one; `None` at the end.
    ///
    /// # Errors
    /// The text is no XML, or declares a document type.
    pub fn next_tag(&mut self) -> Result<Option<Tag<'text>>, &'static str> {
        loop {
            let Some((_, rest)) = self.rest.split_once('<') else {
                self.rest = "";
                return Ok(None);
            };
            let (opening, ending) = match rest.get(..1) {
                Some("?") => ("?", "?>"),
                Some("!") if rest.starts_with("!--") => ("!--", "-->"),
                Some("!") if rest.starts_with("![CDATA[") => ("![CDATA[", "]]>"),
                Some("!") => return Err("it declares a document type"),
                _ => return self.tag(rest).map(Some),
            };
            let inner = rest.strip_prefix(opening).unwrap_or(rest);
            self.rest = inner.split_once(ending).ok_or("it is cut off")?.1;
        }
    }

    fn tag(&mut self, rest: &'text str) -> Result<Tag<'text>, &'static str> {
        let (inner, after) = split_tag(rest)?;
        self.rest = after;
        if let Some(name) = inner.strip_prefix('/') {
            return Ok(Tag::Close(name.trim_end()));
        }
        let (inner, is_empty) = match inner.strip_suffix('/') {
            Some(inner) => (inner, true),
            None => (inner, false),
        };
        let (name, attributes) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
        if name.is_empty() || name.contains(['"', '\'', '=', '/']) {
            return Err("a tag has no name");
        }
        Ok(Tag::Open { name, attributes, is_empty })
    }
}

/// Splits after the `>` that ends the tag, which is not in a quoted value.
fn split_tag(text: &str) -> Result<(&str, &str), &'static str> {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '>') => {
                let (inner, after) = text.split_at_checked(at).ok_or("it is cut off")?;
                return Ok((inner, after.get(1..).unwrap_or_default()));
            }
            (_, '<') => return Err("a tag has a <"),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    Err("it is cut off")
}

/// The value of the attribute `name`, if there is one.
///
/// # Errors
/// The attributes are no XML.
pub fn attribute(attributes: &str, name: &str) -> Result<Option<String>, &'static str> {
    let mut rest = attributes.trim_start();
    let mut found = None;
    for _ in 0..ATTRIBUTES_MAX {
        if rest.is_empty() {
            return Ok(found);
        }
        let (key, after) = rest.split_once('=').ok_or("an attribute has no value")?;
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| matches!(c, '"' | '\''));
        let quote = quote.ok_or("an attribute is not quoted")?;
        let quoted = after.get(1..).unwrap_or_default();
        let (value, after) = quoted.split_once(quote).ok_or("it is cut off")?;
        if key.trim_end() == name {
            if found.is_some() {
                return Err("an attribute is there twice");
            }
            found = Some(unescaped(value)?);
        }
        rest = after.trim_start();
    }
    Err("a tag has too many attributes")
}

/// `text` with its references replaced.
fn unescaped(text: &str) -> Result<String, &'static str> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        let (reference, after) = after.split_once(';').ok_or("a reference has no end")?;
        plain.push_str(before);
        plain.push(match reference {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            other => numbered(other).ok_or("a reference is unknown")?,
        });
        rest = after;
    }
    plain.push_str(rest);
    Ok(plain)
}

fn numbered(reference: &str) -> Option<char> {
    let number = reference.strip_prefix('#')?;
    let code = match number.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16).ok()?,
        None => number.parse().ok()?,
    };
    char::from_u32(code)
}
