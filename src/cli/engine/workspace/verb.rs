//! What a verb of `cofferdam workspace` is made of.

use ureq::http::Method;

/// One verb: its request, and what its words and options mean there.
#[derive(Debug)]
pub struct WorkspaceVerb {
    /// The verb.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// The method of the request.
    pub method: Method,
    /// The path, with ids in braces.
    pub path: &'static str,
    /// The keys, in groups that several verbs share.
    pub keys: &'static [&'static [VerbKey]],
    /// How the request is sent and the answer is shown.
    pub action: VerbAction,
    /// Examples, one a line.
    pub examples: &'static str,
}

/// How a request is sent and its answer is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerbAction {
    /// JSON both ways.
    Exchange,
    /// Prints the bytes of the answer.
    Download,
    /// Sends a file, or a directory as an archive.
    Upload,
    /// Passes on the output of a program.
    Run,
    /// Connects this terminal to a program.
    Attach,
}

/// A word or an option, and its place in the request.
#[derive(Debug, Clone, Copy)]
pub struct VerbKey {
    /// The name of the option, or of the word in usage texts.
    pub name: &'static str,
    /// The key in the request; nested ones have dots.
    pub key: &'static str,
    /// Where the key is.
    pub place: KeyPlace,
    /// How it is given.
    pub form: KeyForm,
    /// What values it has.
    pub kind: KeyKind,
    /// What it means.
    pub help: &'static str,
    /// The option that this one excludes, and that takes the place of this word.
    pub unless: Option<&'static str>,
}

/// The part of a request that a key is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPlace {
    /// The path.
    Path,
    /// The query.
    Query,
    /// The body, which is JSON.
    Body,
    /// The value is the body, of a request to another path.
    WholeBody(&'static str),
    /// Nowhere: the value names what is sent.
    Source,
}

/// How a key is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyForm {
    /// A word.
    Word,
    /// A word that may be missing, and what it is then.
    WordOr(&'static str),
    /// An option.
    Option,
}

/// What values a key has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Any text.
    Text,
    /// Text that is not empty.
    Id,
    /// A whole number from 0.
    Count,
    /// A whole number.
    Integer,
    /// A number of bytes, or one with a unit.
    Bytes,
    /// Milliseconds, or a duration with a unit.
    Millis,
    /// True if it is given.
    Flag,
    /// 1 if it is given.
    One,
    /// True if it is given; may be set to false.
    Boolean,
    /// `KEY=VALUE`, any number of times.
    Variables,
    /// Any number of words.
    Texts,
    /// All words after `--`: a program and its arguments.
    Command,
    /// A file with JSON.
    JsonFile,
    /// A file with any bytes, which the body holds.
    BytesFile,
    /// A file or directory that is sent.
    Upload,
}

impl VerbKey {
    /// The id `name` in the path.
    pub const fn id(name: &'static str, help: &'static str) -> Self {
        Self::word(name, KeyPlace::Path, KeyKind::Id, help)
    }

    /// A word with the name of its key.
    pub const fn word(
        name: &'static str,
        place: KeyPlace,
        kind: KeyKind,
        help: &'static str,
    ) -> Self {
        Self { name, key: name, place, form: KeyForm::Word, kind, help, unless: None }
    }

    /// An option whose key in the request is `key`.
    pub const fn option(
        name: &'static str,
        key: &'static str,
        place: KeyPlace,
        kind: KeyKind,
        help: &'static str,
    ) -> Self {
        Self { name, key, place, form: KeyForm::Option, kind, help, unless: None }
    }

    /// A word that is `default` if it is missing.
    pub const fn or(self, default: &'static str) -> Self {
        Self { form: KeyForm::WordOr(default), ..self }
    }

    /// Another key than its name.
    pub const fn keyed(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    /// Excludes the option `other`.
    pub const fn unless(self, other: &'static str) -> Self {
        Self { unless: Some(other), ..self }
    }
}
