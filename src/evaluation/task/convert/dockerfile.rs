//! What a Dockerfile says besides commands: the directory, variables, and the files that it copies.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use crate::evaluation::task::error::TaskError;

/// What is kept of a Dockerfile.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Dockerfile {
    /// The last WORKDIR.
    pub workdir: Option<PathBuf>,
    /// Its line, from 1.
    pub workdir_line: Option<u64>,
    /// The variables of ENV.
    pub env: BTreeMap<String, String>,
    /// Each COPY.
    pub copies: Vec<DockerCopy>,
}

/// One COPY.
#[derive(Debug, PartialEq, Eq)]
pub struct DockerCopy {
    /// Its line, from 1.
    pub line: u64,
    /// Paths in the build context.
    pub sources: Vec<PathBuf>,
    /// The absolute path of the target.
    pub target: PathBuf,
    /// Whether the target is a directory by its spelling.
    pub into_directory: bool,
}

/// An instruction: its first line, its name in capitals, the rest with joined lines.
struct DockerInstruction {
    line: u64,
    name: String,
    rest: String,
}

/// Reads the Dockerfile `text`.
///
/// # Errors
/// [`TaskError::Invalid`] naming `file` and the line of an instruction that is not kept: above all RUN.
pub fn parse_dockerfile(file: &str, text: &str) -> Result<Dockerfile, TaskError> {
    let mut read = Dockerfile::default();
    let mut images = 0;
    for instruction in instructions(text) {
        let line = instruction.line;
        let refuse = |reason: String| TaskError::Invalid {
            file: Some(file.to_owned()),
            line: Some(line),
            field: None,
            reason,
        };
        match instruction.name.as_str() {
            "FROM" if images == 0 => images += 1,
            "FROM" => return Err(refuse("a second FROM is not converted".to_owned())),
            // They say nothing about the files: the service runs its own commands.
            "LABEL" | "CMD" | "EXPOSE" | "MAINTAINER" | "STOPSIGNAL" => {}
            "WORKDIR" => {
                let path = expanded(instruction.rest.trim(), &read.env).map_err(refuse)?;
                read.workdir_line = Some(line);
                read.workdir = Some(resolved(read.workdir.as_deref(), &path).map_err(refuse)?);
            }
            "ENV" => {
                for (name, value) in variables(&instruction.rest, &read.env).map_err(refuse)? {
                    read.env.insert(name, value);
                }
            }
            "COPY" => {
                let copy = copy(&instruction, &read).map_err(refuse)?;
                read.copies.push(copy);
            }
            name => return Err(refuse(format!("{name} is not converted"))),
        }
    }
    Ok(read)
}

fn instructions(text: &str) -> Vec<DockerInstruction> {
    let mut found: Vec<DockerInstruction> = Vec::new();
    let mut goes_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.starts_with('#') || line.is_empty() {
            continue;
        }
        let (part, continues) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match found.last_mut().filter(|_| goes_on) {
            Some(last) => {
                last.rest.push(' ');
                last.rest.push_str(part.trim());
            }
            None => {
                let (name, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
                let (name, rest) = (name.to_ascii_uppercase(), rest.trim().to_owned());
                found.push(DockerInstruction { line: number, name, rest });
            }
        }
        goes_on = continues;
    }
    found
}

fn copy(instruction: &DockerInstruction, read: &Dockerfile) -> Result<DockerCopy, String> {
    let words = if instruction.rest.starts_with('[') {
        serde_json::from_str(&instruction.rest).map_err(|error| error.to_string())?
    } else {
        words(&instruction.rest)?
    };
    let mut paths = Vec::new();
    for word in words {
        if word.starts_with("--chown") || word.starts_with("--chmod") || word == "--link" {
            continue;
        }
        if word.starts_with("--") {
            return Err(format!("COPY {word} is not converted"));
        }
        paths.push(expanded(&word, &read.env)?);
    }
    let target = paths.pop().filter(|_| !paths.is_empty());
    let target = target.ok_or("COPY needs a source and a target")?;
    let sources = paths.iter().map(|source| {
        let path = Path::new(source.trim_start_matches('/'));
        let is_plain =
            path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        match is_plain && !source.contains(['*', '?', '[']) {
            true => Ok(path.to_owned()),
            false => Err(format!("COPY of {source} is not converted")),
        }
    });
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let into_directory = target.ends_with(['/', '.']) || sources.len() > 1;
    let target = resolved(read.workdir.as_deref(), &target)?;
    Ok(DockerCopy { line: instruction.line, sources, target, into_directory })
}

/// The absolute path of `path` seen from the directory `from`.
fn resolved(from: Option<&Path>, path: &str) -> Result<PathBuf, String> {
    let mut plain = PathBuf::new();
    for part in from.unwrap_or(Path::new("/")).join(path).components() {
        match part {
            Component::ParentDir => return Err(format!("{path} contains `..`")),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    Ok(plain)
}

/// The variables of `A=b C="d e"`, or of the old form `A b c`.
fn variables(rest: &str, env: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, String> {
    let first = rest.split_whitespace().next().unwrap_or_default();
    if !first.contains('=') {
        let (name, value) = rest.split_once(char::is_whitespace).ok_or("ENV needs a value")?;
        return Ok(vec![(name.to_owned(), expanded(value.trim(), env)?)]);
    }
    let pairs = words(rest)?.into_iter().map(|word| {
        let (name, value) = word.split_once('=').ok_or("ENV needs NAME=value")?;
        Ok((name.to_owned(), expanded(value, env)?))
    });
    pairs.collect()
}

/// The words of a line; quotes and backslashes keep blanks.
fn words(text: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            ('\\', Some('"') | None) => word.get_or_insert_default().extend(characters.next()),
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(open)) if c == open => quote = None,
            (c, None) if c.is_whitespace() => found.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    found.extend(word);
    if quote.is_some() { Err("a quote is not closed".to_owned()) } else { Ok(found) }
}

/// Replaces `$NAME` and `${NAME}` by variables of ENV; those of the image are not known.
fn expanded(text: &str, env: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, left) = match after.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or("a variable is not closed")?,
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                after.split_at(end.unwrap_or(after.len()))
            }
        };
        out.push_str(env.get(name).ok_or_else(|| format!("the variable {name:?} is not known"))?);
        rest = left;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_variables_and_copies_are_kept() {
        let text = "# a comment\nFROM python:3.12\nENV HOME_DIR=/app LEVEL=\"a b\" \\\n  X=1\nENV OLD some words\n\
                    WORKDIR $HOME_DIR\nWORKDIR src\nCOPY --chown=1:1 a.py ./\nCOPY [\"data dir\", \"/app/src/data\"]\nCMD [\"bash\"]\n";
        let read = parse_dockerfile("Dockerfile", text).unwrap();
        assert_eq!(read.workdir, Some("/app/src".into()));
        let env: Vec<_> = read.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(env, ["HOME_DIR=/app", "LEVEL=a b", "OLD=some words", "X=1"]);
        let copies: Vec<_> = read.copies.iter().map(|copy| (&copy.sources, &copy.target)).collect();
        assert_eq!(
            copies,
            [
                (&vec!["a.py".into()], &PathBuf::from("/app/src")),
                (&vec!["data dir".into()], &PathBuf::from("/app/src/data")),
            ]
        );
    }

    #[test]
    fn what_is_not_kept_is_refused_by_its_line() {
        for (text, line) in [
            ("FROM a\nRUN make\n", 2),
            ("FROM a\nWORKDIR /x\n\nrun a && \\\n b\n", 4),
            ("FROM a\nADD x y\n", 2),
            ("FROM a\nFROM b\n", 2),
            ("FROM a\nCOPY --from=b x y\n", 2),
            ("FROM a\nCOPY *.py /app\n", 2),
            ("FROM a\nCOPY ../x /app\n", 2),
            ("FROM a\nCOPY x\n", 2),
            ("FROM a\nENV PATH=/x:$PATH\n", 2),
            ("FROM a\nENV A=\"x\n", 2),
            ("FROM a\nUSER root\n", 2),
        ] {
            match parse_dockerfile("Dockerfile", text) {
                Err(TaskError::Invalid { line: found, .. }) => {
                    assert_eq!(found, Some(line), "{text}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
