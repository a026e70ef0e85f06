//! Parses a pattern to find what it names. `values::glob` decides what it matches.

/// How many characters the alternatives of all patterns of a request may have together.
pub(super) const EXPANDED_MAX: usize = 256 * 1024;

/// One element of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternToken {
    /// This character.
    Is(char),
    /// Any character, or one of several.
    One,
    /// Any number of characters.
    Star,
}

/// A path component of a pattern, in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatternPart {
    pub tokens: Vec<PatternToken>,
}

/// A token, or a symbol of the syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternSymbol {
    Token(PatternToken),
    Slash,
    Open,
    Comma,
    Close,
}

/// Expands the groups of `pattern` into all alternatives. Subtracts their length from `budget`;
/// `None` if that does not suffice.
pub fn alternatives(pattern: &str, budget: &mut usize) -> Option<Vec<Vec<PatternPart>>> {
    let (mut pending, mut paths) = (vec![symbols(pattern)], Vec::new());
    while let Some(symbols) = pending.pop() {
        *budget = budget.checked_sub(symbols.len())?;
        let Some((start, end, alternatives)) = first_group(&symbols) else {
            paths.push(parts(&symbols));
            continue;
        };
        for alternative in alternatives {
            let (before, after) = (symbols.get(..start)?, symbols.get(end + 1..)?);
            pending.push([before, alternative, after].concat());
        }
    }
    Some(paths)
}

fn symbols(pattern: &str) -> Vec<PatternSymbol> {
    let mut symbols = Vec::new();
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        symbols.push(match character {
            '\\' => literal(rest.next().unwrap_or('\\')),
            '*' => PatternSymbol::Token(PatternToken::Star),
            '?' => PatternSymbol::Token(PatternToken::One),
            '[' => class(&mut rest),
            '{' => PatternSymbol::Open,
            ',' => PatternSymbol::Comma,
            '}' => PatternSymbol::Close,
            other => literal(other),
        });
    }
    symbols
}

fn literal(character: char) -> PatternSymbol {
    match character {
        '/' => PatternSymbol::Slash,
        other => PatternSymbol::Token(PatternToken::Is(other.to_ascii_lowercase())),
    }
}

/// Reads a class up to its end. A class of one character is that character; a class that contains a
/// slash counts as a slash.
fn class(rest: &mut std::str::Chars<'_>) -> PatternSymbol {
    let mut members = Vec::new();
    for member in rest.by_ref() {
        // A bracket at the beginning, or after a negation, is a member.
        let is_first = members.is_empty() || matches!(members[..], ['!' | '^']);
        if member == ']' && !is_first {
            break;
        }
        members.push(member);
    }
    match members[..] {
        ['!' | '^', ..] => PatternSymbol::Token(PatternToken::One),
        [only] => literal(only),
        _ if members.contains(&'/') => PatternSymbol::Slash,
        [first, '-', last] if first == last => literal(first),
        _ => PatternSymbol::Token(PatternToken::One),
    }
}

/// Returns the start and end of the first group, and its alternatives.
fn first_group(symbols: &[PatternSymbol]) -> Option<(usize, usize, Vec<&[PatternSymbol]>)> {
    let start = symbols.iter().position(|symbol| *symbol == PatternSymbol::Open)?;
    let (mut depth, mut from, mut alternatives) = (0_usize, start + 1, Vec::new());
    for (at, symbol) in symbols.iter().enumerate().skip(start) {
        match symbol {
            PatternSymbol::Open => depth += 1,
            PatternSymbol::Close => depth -= 1,
            PatternSymbol::Token(_) | PatternSymbol::Slash | PatternSymbol::Comma => {}
        }
        let is_end = depth == 0;
        if is_end || (depth == 1 && *symbol == PatternSymbol::Comma) {
            alternatives.push(symbols.get(from..at)?);
            from = at + 1;
        }
        if is_end {
            return Some((start, at, alternatives));
        }
    }
    None
}

fn parts(symbols: &[PatternSymbol]) -> Vec<PatternPart> {
    let mut parts = vec![PatternPart::default()];
    for symbol in symbols {
        let token = match symbol {
            PatternSymbol::Slash => {
                parts.push(PatternPart::default());
                continue;
            }
            PatternSymbol::Token(token) => token.clone(),
            PatternSymbol::Open => PatternToken::Is('{'),
            PatternSymbol::Comma => PatternToken::Is(','),
            PatternSymbol::Close => PatternToken::Is('}'),
        };
        if let Some(part) = parts.last_mut()
            && !(token == PatternToken::Star && part.tokens.last() == Some(&PatternToken::Star))
        {
            part.tokens.push(token);
        }
    }
    parts
}

impl PatternPart {
    /// Returns its text, if it contains no wildcard.
    pub fn literal(&self) -> Option<String> {
        let character = |token: &PatternToken| match token {
            PatternToken::Is(character) => Some(*character),
            PatternToken::One | PatternToken::Star => None,
        };
        self.tokens.iter().map(character).collect()
    }

    /// Returns its text, with each wildcard replaced.
    pub fn text(&self, replacement: impl Fn(&PatternToken) -> &'static str) -> String {
        let mut text = String::new();
        for token in &self.tokens {
            match token {
                PatternToken::Is(character) => text.push(*character),
                wildcard => text.push_str(replacement(wildcard)),
            }
        }
        text
    }

    /// Counts the letters and digits in its text.
    pub fn letters_and_digits(&self) -> usize {
        let is_counted = |token: &&PatternToken| matches!(token, PatternToken::Is(c) if c.is_ascii_alphanumeric());
        self.tokens.iter().filter(is_counted).count()
    }

    /// Whether it matches the whole of `name`, which must be short and in lower case.
    pub fn matches(&self, name: &str) -> bool {
        let needed = self.tokens.iter().filter(|token| **token != PatternToken::Star).count();
        let has_star = needed < self.tokens.len();
        if needed > name.len() || (needed < name.len() && !has_star) {
            return false;
        }
        let mut ends = vec![false; name.len() + 1];
        ends[0] = true;
        let name: Vec<char> = name.chars().collect();
        for token in &self.tokens {
            let mut next = vec![false; ends.len()];
            let mut any_before = false;
            for (at, is_end) in ends.iter().enumerate() {
                any_before |= is_end;
                match token {
                    PatternToken::Star => next[at] = any_before,
                    PatternToken::One if at > 0 => next[at] = ends[at - 1],
                    PatternToken::Is(c) if at > 0 => {
                        next[at] = ends[at - 1] && name.get(at - 1) == Some(c);
                    }
                    PatternToken::One | PatternToken::Is(_) => {}
                }
            }
            ends = next;
        }
        ends.last().copied().unwrap_or_default()
    }
}
