//! Replaces the body of a Python function (pure).

use std::ops::{ControlFlow, Range};

use tree_sitter::{Node, ParseOptions, Parser, Tree, TreeCursor};

/// The longest file with a function to empty, bytes.
pub const STUB_BYTES_MAX: usize = 1 << 20;
/// What the body of an emptied function is.
const EMPTY_BODY: &str = "raise NotImplementedError";
/// Reports of progress for each byte of a file, of 100 steps each. Parsing that needs more is given up.
const REPORTS_PER_BYTE_MAX: usize = 1;
/// The same for an empty file.
const REPORTS_MIN: usize = 10_000;

/// Why a function cannot be emptied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StubError {
    /// No function has the name.
    #[error("there is no function '{function}'")]
    NoFunction {
        /// The name.
        function: String,
    },
    /// The name alone is that of several methods or nested functions.
    #[error("several functions are named '{function}': name the class or function of one too")]
    Ambiguous {
        /// The name.
        function: String,
    },
    /// The file is no Python.
    #[error("line {line} is no valid Python")]
    Syntax {
        /// The line, from 1.
        line: usize,
    },
    /// The parser and its grammar do not fit together.
    #[error("the parser does not know this version of the grammar")]
    NoGrammar,
    /// The file is too long, or takes too many steps.
    #[error("the file is too long: functions of at most {STUB_BYTES_MAX} bytes can be emptied")]
    TooLarge,
}

/// A replacement of bytes.
struct SourceEdit {
    range: Range<usize>,
    text: String,
}

/// Replaces the body of every definition of `function` in the Python file `source` with
/// `raise NotImplementedError`. A docstring stays, and every other byte too. The body reaches from the first byte of
/// its first statement, or decorator, to the last byte of its last statement: comments before, after and beside it stay.
///
/// `function` is `f`, `Class.method` or `outer.inner`, however deep. A name alone that nothing at the top has is that
/// of the only method or nested function with it.
///
/// # Errors
/// There is no such function, or the file is no Python.
pub fn stub_function(source: &str, function: &str) -> Result<String, StubError> {
    if source.len() > STUB_BYTES_MAX {
        return Err(StubError::TooLarge);
    }
    let tree = parsed(source)?;
    let mut stubbed = String::with_capacity(source.len());
    let mut kept_from = 0;
    for body in bodies(&tree, source, function)? {
        let SourceEdit { range, text } = emptied(body, source)?;
        stubbed.push_str(part(source, kept_from..range.start));
        stubbed.push_str(&text);
        kept_from = range.end;
    }
    stubbed.push_str(part(source, kept_from..source.len()));
    Ok(stubbed)
}

fn parsed(source: &str) -> Result<Tree, StubError> {
    let mut parser = Parser::new();
    let grammar = tree_sitter_python::LANGUAGE.into();
    parser.set_language(&grammar).map_err(|_| StubError::NoGrammar)?;
    let mut reports_left = source.len().saturating_mul(REPORTS_PER_BYTE_MAX).max(REPORTS_MIN);
    let mut on_progress = |_: &tree_sitter::ParseState| match reports_left.checked_sub(1) {
        Some(left) => {
            reports_left = left;
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    };
    let options = ParseOptions::new().progress_callback(&mut on_progress);
    let mut read = |from: usize, _| source.as_bytes().get(from..).unwrap_or_default();
    let tree = parser.parse_with_options(&mut read, None, Some(options));
    let tree = tree.ok_or(StubError::TooLarge)?;
    match tree.root_node().has_error() {
        true => Err(StubError::Syntax { line: first_fault_line(&tree) }),
        false => Ok(tree),
    }
}

/// The line of the first part that is no Python.
fn first_fault_line(tree: &Tree) -> usize {
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        let is_found = node.is_error() || node.is_missing();
        // The next part with a fault: inside, or else beside.
        if is_found {
            return node.start_position().row + 1;
        }
        let goes_on = (node.has_error() && cursor.goto_first_child()) || cursor.goto_next_sibling();
        if !goes_on {
            return node.start_position().row + 1;
        }
    }
}

/// The bodies of the functions that `function` names, in the order of the file.
fn bodies<'t>(tree: &'t Tree, source: &str, function: &str) -> Result<Vec<Node<'t>>, StubError> {
    let named = NamedBodies::find(tree, source, function);
    let found = if named.whole.is_empty() { named.alone } else { named.whole };
    match found.is_empty() {
        true => Err(StubError::NoFunction { function: function.to_owned() }),
        false if named.is_ambiguous => Err(StubError::Ambiguous { function: function.to_owned() }),
        false => Ok(found),
    }
}

/// The bodies of functions that a name may mean.
#[derive(Default)]
struct NamedBodies<'t> {
    /// Those of functions with this whole name.
    whole: Vec<Node<'t>>,
    /// If it is a name alone: those of methods and nested functions with it.
    alone: Vec<Node<'t>>,
    /// Whether it means the second, and they have several whole names.
    is_ambiguous: bool,
}

impl<'t> NamedBodies<'t> {
    fn find(tree: &'t Tree, source: &str, function: &str) -> Self {
        let wanted: Vec<&str> = function.split('.').collect();
        let (mut found, mut first) = (Self::default(), None);
        let (mut cursor, mut scope) = (tree.walk(), Vec::new());
        loop {
            let node = cursor.node();
            if let Some(name) = defined_name(node, source) {
                scope.push(name);
                let body = node.child_by_field_name("body").filter(|_| is_function(node));
                match body {
                    Some(body) if scope == wanted => found.whole.push(body),
                    // Whole names are compared, not kept: a file may have many long ones.
                    Some(body) if [name] == wanted[..] => {
                        found.is_ambiguous |= *first.get_or_insert_with(|| scope.clone()) != scope;
                        found.alone.push(body);
                    }
                    _ => {}
                }
            }
            if !cursor.goto_first_child() && !goes_on(&mut cursor, source, &mut scope) {
                found.is_ambiguous &= found.whole.is_empty();
                return found;
            }
        }
    }
}

/// Goes to the next node that is not below this one.
fn goes_on(cursor: &mut TreeCursor<'_>, source: &str, scope: &mut Vec<&str>) -> bool {
    loop {
        if defined_name(cursor.node(), source).is_some() {
            scope.pop();
        }
        if cursor.goto_next_sibling() {
            return true;
        }
        if !cursor.goto_parent() {
            return false;
        }
    }
}

/// The name of a function or class.
fn defined_name<'s>(node: Node<'_>, source: &'s str) -> Option<&'s str> {
    let is_named = is_function(node) || node.kind() == "class_definition";
    let name = if is_named { node.child_by_field_name("name") } else { None };
    name.map(|name| part(source, name.byte_range()))
}

fn is_function(node: Node<'_>) -> bool {
    node.kind() == "function_definition"
}

/// What replaces the body.
fn emptied(body: Node<'_>, source: &str) -> Result<SourceEdit, StubError> {
    let mut cursor = body.walk();
    let mut statements = body.named_children(&mut cursor).filter(|node| !node.is_extra());
    let no_statement = || StubError::Syntax { line: body.start_position().row + 1 };
    let first = statements.next().ok_or_else(no_statement)?;
    if !is_docstring(first, source) {
        let last = statements.last().unwrap_or(first);
        return Ok(replaced(first, last));
    }
    Ok(match statements.next() {
        Some(second) => replaced(second, statements.last().unwrap_or(second)),
        None => added(first, body, source),
    })
}

fn replaced(first: Node<'_>, last: Node<'_>) -> SourceEdit {
    SourceEdit { range: first.start_byte()..end_of(last), text: EMPTY_BODY.to_owned() }
}

/// Where the last token of a statement ends. A comment below its own last statement is no part of it.
fn end_of(statement: Node<'_>) -> usize {
    let mut node = statement;
    loop {
        let mut cursor = node.walk();
        let last = node.children(&mut cursor).filter(|child| !child.is_extra()).last();
        match last {
            Some(last) => node = last,
            None => return node.end_byte(),
        }
    }
}

/// Whether the statement, the first of its function, is a docstring.
fn is_docstring(statement: Node<'_>, source: &str) -> bool {
    let mut node = statement;
    while matches!(node.kind(), "expression_statement" | "parenthesized_expression") {
        let is_statement = node.kind() == "expression_statement";
        let mut cursor = node.walk();
        let mut parts = node.children(&mut cursor).filter(|child| {
            // `"a",` is a tuple: its comma counts, the parentheses of `("a")` do not.
            !child.is_extra() && (is_statement || child.is_named())
        });
        match (parts.next(), parts.next()) {
            (Some(only), None) => node = only,
            _ => return false,
        }
    }
    match node.kind() {
        "string" => is_plain_string(node, source),
        "concatenated_string" => {
            let mut cursor = node.walk();
            let mut strings = node.named_children(&mut cursor).filter(|child| !child.is_extra());
            strings.all(|string| is_plain_string(string, source))
        }
        _ => false,
    }
}

/// Whether the literal is a `str` that needs no evaluation.
fn is_plain_string(string: Node<'_>, source: &str) -> bool {
    let text = part(source, string.byte_range());
    let prefix = text.split(['"', '\'']).next().unwrap_or_default();
    !prefix.contains(['b', 'B', 'f', 'F', 't', 'T'])
}

/// The body that follows a docstring which is all that its function has.
fn added(docstring: Node<'_>, body: Node<'_>, source: &str) -> SourceEdit {
    let end = end_of(docstring);
    let before = part(source, 0..docstring.start_byte());
    let line_start = before.rfind(['\n', '\r']).map_or(0, |at| at + 1);
    let indent = part(before, line_start..before.len());
    let colon_end = body.prev_sibling().map_or(0, |colon| colon.end_byte());
    let gap = part(before, colon_end..before.len());
    let newline = ["\r\n", "\n", "\r"].into_iter().find(|newline| gap.contains(newline));
    let after = part(source, end..source.len());
    let rest = part(after, 0..after.find(['\n', '\r']).unwrap_or(after.len()));
    let is_own_line = indent.trim().is_empty() && !gap.contains('\\');
    let ends_there = rest.trim().is_empty() || rest.trim_start().starts_with('#');
    match newline.filter(|_| is_own_line && ends_there) {
        Some(newline) => {
            let at = end + rest.len();
            SourceEdit { range: at..at, text: format!("{newline}{indent}{EMPTY_BODY}") }
        }
        // On the line of the definition, or before a semicolon.
        None => SourceEdit { range: end..end, text: format!("; {EMPTY_BODY}") },
    }
}

/// The text between two bytes of `source` that the parser has named.
fn part(source: &str, range: Range<usize>) -> &str {
    source.get(range).unwrap_or_default()
}
