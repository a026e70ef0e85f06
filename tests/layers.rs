//! The shape of the source: layers, where unsafe code may be, and how long a file may get.

// The whole crate is a test; clippy knows it only where it is told.
#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};

/// The layers, and what each may use.
const MAY_USE: [(&str, &[&str]); 13] = [
    ("base", &[]),
    ("spec", &["base"]),
    ("sandbox", &["base", "spec"]),
    ("lang", &["base", "spec"]),
    ("workspace", &["base", "spec"]),
    ("executor", &["base", "spec", "sandbox", "lang", "workspace"]),
    ("policy", &["base", "spec"]),
    ("runstore", &["base", "spec", "workspace"]),
    ("config", &["base", "spec", "sandbox", "lang", "workspace", "executor"]),
    (
        "service",
        &[
            "base",
            "spec",
            "sandbox",
            "lang",
            "workspace",
            "executor",
            "policy",
            "runstore",
            "config",
        ],
    ),
    ("http", &["base", "spec", "service", "config"]),
    (
        "cli",
        &[
            "base",
            "spec",
            "sandbox",
            "lang",
            "workspace",
            "executor",
            "policy",
            "runstore",
            "service",
            "http",
            "config",
        ],
    ),
    ("main", &["cli"]),
];
const FILE_LINES_MAX: usize = 500;

/// Whether the source file `path` (below `src`) may hold unsafe code.
fn may_be_unsafe(path: &str) -> bool {
    ["sandbox/sys.rs", "sandbox/clone.rs", "sandbox/child.rs", "sandbox/namespace_holder.rs"]
        .contains(&path)
        || (path.starts_with("sandbox/init/") && path.matches('/').count() == 2)
}

/// Every fault of the source file `path` (below `src`), each with its line.
fn faults(path: &str, source: &str) -> Vec<String> {
    let code = without_comments_and_literals(source);
    let mut faults = forbidden_arrows(path, &code);
    faults.extend(unproved_unsafe(path, source, &code));
    let lines = source.lines().count();
    if lines > FILE_LINES_MAX {
        faults.push(format!("{path}: {lines} lines, more than {FILE_LINES_MAX}"));
    }
    faults
}

/// The layer that the source file `path` is part of.
fn layer_of(path: &str) -> &str {
    path.split(['/', '.']).next().unwrap_or(path)
}

fn forbidden_arrows(path: &str, code: &str) -> Vec<String> {
    let layer = layer_of(path);
    if layer == "lib" {
        return Vec::new();
    }
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == layer) else {
        return vec![format!("{path}: {layer} is not one of the layers")];
    };
    // The init is a crate of its own, whose top level has other names.
    let is_layer = |used: &str| MAY_USE.iter().any(|(name, _)| *name == used);
    let is_fault = |used: &str| used != layer && is_layer(used) && !allowed.contains(&used);
    used_layers(path, code)
        .into_iter()
        .filter(|(_, used)| is_fault(used))
        .map(|(line, used)| format!("{path}:{line}: {layer} uses {used}"))
        .collect()
}

/// What of the crate's top level `code` names, with the lines: by `crate::`, by `cofferdam::`
/// (from the program) and by a `super::` chain that is long enough to get there.
fn used_layers(path: &str, code: &str) -> Vec<(usize, String)> {
    let mut used = Vec::new();
    for root in ["crate::", "cofferdam::", &"super::".repeat(depth_of(path))] {
        // Of a file at the top there is no way up.
        for (at, _) in code.match_indices(root).filter(|_| !root.is_empty()) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|before| is_word(before) || before == ':') {
                continue;
            }
            let line = code[..at].matches('\n').count() + 1;
            let names = first_names(&code[at + root.len()..]);
            // A longer chain climbs past the top from here, so it began in an inner module.
            used.extend(names.into_iter().filter(|name| name != "super").map(|name| (line, name)));
        }
    }
    used
}

/// How many modules the file `path` is below the crate's root.
fn depth_of(path: &str) -> usize {
    let parts = path.trim_end_matches(".rs").split('/').filter(|part| *part != "mod").count();
    if ["lib.rs", "main.rs"].contains(&path) { 0 } else { parts }
}

/// The first part of each path in `text`, which may be a group in braces.
fn first_names(text: &str) -> Vec<String> {
    let name =
        |text: &str| text.trim_start().chars().take_while(|c| is_word(*c)).collect::<String>();
    let Some(group) = text.trim_start().strip_prefix('{') else { return vec![name(text)] };
    let (mut names, mut depth, mut item) = (Vec::new(), 0, String::new());
    for character in group.chars() {
        match character {
            '}' if depth == 0 => break,
            ',' if depth == 0 => names.push(name(&std::mem::take(&mut item))),
            '{' => depth += 1,
            '}' => depth -= 1,
            other => item.push(other),
        }
    }
    names.push(name(&item));
    names.retain(|name| !name.is_empty());
    names
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn unproved_unsafe(path: &str, source: &str, code: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().collect();
    let mut faults = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for (at, word) in line.match_indices("unsafe") {
            let rest = &line[at + word.len()..];
            let is_whole = !line[..at].chars().next_back().is_some_and(is_word)
                && !rest.chars().next().is_some_and(is_word);
            let place = format!("{path}:{}", index + 1);
            if !is_whole {
                continue;
            }
            if !may_be_unsafe(path) {
                faults.push(format!("{place}: unsafe code outside the files for it"));
            } else if rest.trim_start().starts_with('{') && !is_proved(&lines[..index]) {
                faults.push(format!("{place}: an unsafe block without a SAFETY comment"));
            }
        }
    }
    faults
}

/// Whether the comment above the statement that goes on after `lines` says why it is safe.
fn is_proved(lines: &[&str]) -> bool {
    let mut above = lines.iter().rev().map(|line| line.trim()).skip_while(|line| {
        let is_comment = line.starts_with("//");
        // Still the same statement, which began further up, or what is put on it.
        !is_comment && !line.is_empty() && !line.ends_with([';', '{', '}'])
    });
    above.by_ref().take_while(|line| line.starts_with("//")).any(|line| line.contains("SAFETY:"))
}

/// `source` with every comment and literal blanked; lines stay where they are.
fn without_comments_and_literals(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let skipped = comment_or_literal(rest, code.chars().next_back());
        let (taken, replaced) =
            if skipped > 0 { (skipped, true) } else { (first.len_utf8(), false) };
        let (text, after) = rest.split_at(taken);
        let blank = |c: char| if c == '\n' || !replaced { c } else { ' ' };
        code.extend(text.chars().map(blank));
        rest = after;
    }
    code
}

/// How many bytes the comment or literal at the start of `text` has; zero when there is none.
fn comment_or_literal(text: &str, before: Option<char>) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment(text);
    }
    if text.starts_with('"') {
        return quoted(text, '"');
    }
    if text.starts_with('\'') {
        return character_literal(text);
    }
    let is_new_word = !before.is_some_and(is_word);
    let hashes =
        text.strip_prefix('r').map_or(0, |raw| raw.len() - raw.trim_start_matches('#').len());
    if is_new_word && text.starts_with('r') && text[1 + hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let start = 2 + hashes;
        return text[start..].find(&end).map_or(text.len(), |at| start + at + end.len());
    }
    0
}

/// Block comments nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            end if end == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// A quote begins a character when one more follows within it, a lifetime otherwise.
fn character_literal(text: &str) -> usize {
    let mut inside = text.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(text, '\''),
        _ => 0,
    }
}

/// Every source file, by its path below `directory`, and its text.
fn sources(directory: &Path) -> Vec<(String, String)> {
    let mut pending = vec![PathBuf::from(directory)];
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(directory).unwrap().to_str().unwrap().to_owned();
            found.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn the_source_has_the_shape_it_is_meant_to_have() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(sources.len() > 50, "{} files found", sources.len());
    let faults: Vec<String> =
        sources.iter().flat_map(|(path, source)| faults(path, source)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn an_arrow_up_or_sideways_is_found() {
    for (path, source, fault) in [
        ("base/slots.rs", "use crate::spec::Limits;", "base uses spec"),
        ("spec/mod.rs", "use crate::sandbox::Sandbox;", "spec uses sandbox"),
        ("sandbox/plan.rs", "use crate::lang::table;", "sandbox uses lang"),
        ("lang/mod.rs", "use crate::workspace::put;", "lang uses workspace"),
        ("workspace/put.rs", "fn f() { crate::sandbox::open() }", "workspace uses sandbox"),
        ("executor/mod.rs", "use crate::service::CheckRun;", "executor uses service"),
        ("executor/mod.rs", "use crate::config::Config;", "executor uses config"),
        ("service/mod.rs", "use crate::http::reply;", "service uses http"),
        ("http/reply.rs", "use crate::sandbox::Sandbox;", "http uses sandbox"),
        ("main.rs", "use cofferdam::http::serve;", "main uses http"),
        ("base/mod.rs", "use crate::{base::slots, spec::{Limits, base}};", "base uses spec"),
        ("base/mod.rs", "use crate::{\n    spec,\n};", "base uses spec"),
        ("sandbox/cgroup/tree.rs", "use super::super::super::lang::x;", "sandbox uses lang"),
        ("helpers/mod.rs", "", "helpers is not one of the layers"),
        ("base/mod.rs", "macro_rules! m { () => { $crate::spec::f() } }", "base uses spec"),
    ] {
        let found = faults(path, source);
        assert_eq!(found.len(), 1, "{path}: {source}: {found:?}");
        assert!(found[0].ends_with(fault), "{found:?}");
    }
}

#[test]
fn arrows_down_and_words_that_are_no_arrows_are_fine() {
    for (path, source) in [
        ("spec/mod.rs", "use crate::base::slots;"),
        ("service/mod.rs", "use crate::{base, spec, executor, config::Config};"),
        ("cli/serve.rs", "use crate::http::serve;\nuse crate::sandbox::Sandbox;"),
        ("sandbox/cgroup/tree.rs", "use super::super::sys;\nuse crate::sandbox::sys;"),
        ("base/mod.rs", "// crate::spec\n/* crate::http /* nested */ crate::cli */"),
        ("base/mod.rs", r##"const A: &str = "crate::spec"; const B: &str = r#"crate::"spec"#;"##),
        ("base/mod.rs", "const QUOTE: char = '\"'; fn f<'a>(x: &'a str) {} // crate::spec"),
        ("main.rs", "fn main() { cofferdam::cli::main() }"),
    ] {
        assert_eq!(faults(path, source), [""; 0], "{path}: {source}");
    }
}

#[test]
fn unsafe_code_outside_its_files_is_found() {
    for (path, source) in [
        ("sandbox/plan.rs", "// SAFETY: fine.\nunsafe { f() }"),
        ("base/mod.rs", "unsafe fn f() {}"),
        ("base/mod.rs", "let x = '\"'; unsafe impl Send for X {}"),
        ("workspace/sys.rs", "#[unsafe(no_mangle)] extern \"C\" fn f() {}"),
        ("sandbox/init/deeper/sys.rs", "// SAFETY: fine.\nunsafe { f() }"),
    ] {
        assert_eq!(faults(path, source).len(), 1, "{path}: {source}");
    }
    let words = "#![deny(unsafe_op_in_unsafe_fn)] // unsafe\nconst A: &str = \"unsafe\";";
    assert_eq!(faults("base/mod.rs", words), [""; 0]);
}

#[test]
fn an_unsafe_block_without_its_reason_is_found() {
    let path = "sandbox/init/sys.rs";
    for source in [
        "unsafe { f() }",
        "// Fine.\nunsafe { f() }",
        "// SAFETY: of something else.\nf();\nunsafe { f() }",
        "// SAFETY: of something else.\n\nlet x = unsafe { f() };",
        "// SAFETY: of the first.\nlet x = unsafe { f() };\nlet y = unsafe { g() };",
    ] {
        assert_eq!(faults(path, source).len(), 1, "{source}");
    }
    for source in [
        "// SAFETY: fine.\nunsafe { f() }",
        "// SAFETY: of two\n// lines.\nlet x = unsafe { f() };",
        "// SAFETY: fine.\nlet x =\n    unsafe { f() };",
        "// SAFETY: fine.\n#[cfg(test)]\nunsafe { f() }",
        "/// # Safety\n/// Never.\nunsafe fn f() {}",
    ] {
        assert_eq!(faults(path, source), [""; 0], "{source}");
    }
}

#[test]
fn a_file_that_is_too_long_is_found() {
    let line = "fn f() {}\n";
    assert_eq!(faults("base/mod.rs", &line.repeat(FILE_LINES_MAX)), [""; 0]);
    assert_eq!(faults("base/mod.rs", &line.repeat(FILE_LINES_MAX + 1)).len(), 1);
}
