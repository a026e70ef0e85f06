//! A pattern taken apart, to see what it names. What it matches is for `base::glob` to say.

/// How many characters patterns may come to with all their alternatives written out.
pub const WRITTEN_OUT_MAX: usize = 256 * 1024;

/// One character's place in a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PatternToken {
    /// This character.
    Is(char),
    /// One of several, or any one.
    One,
    /// Any number of any.
    Star,
}

/// What stands between slashes, in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatternPart {
    pub tokens: Vec<PatternToken>,
}

/// A character's place, or a sign of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternSymbol {
    Token(PatternToken),
    Slash,
    Open,
    Comma,
    Close,
}

/// Every way to read the groups of `pattern`, each as its parts. What they come to is taken from
/// `left`; none where that is too little.
pub fn alternatives(pattern: &str, left: &mut usize) -> Option<Vec<Vec<PatternPart>>> {
    let (mut pending, mut paths) = (vec![signs(pattern)], Vec::new());
    while let Some(signs) = pending.pop() {
        *left = left.checked_sub(signs.len())?;
        let Some((start, end, alternatives)) = first_group(&signs) else {
            paths.push(parts(&signs));
            continue;
        };
        for alternative in alternatives {
            let (before, after) = (signs.get(..start)?, signs.get(end + 1..)?);
            pending.push([before, alternative, after].concat());
        }
    }
    Some(paths)
}

fn signs(pattern: &str) -> Vec<PatternSymbol> {
    let mut signs = Vec::new();
    let mut rest = pattern.chars();
    while let Some(character) = rest.next() {
        signs.push(match character {
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
    signs
}

fn literal(character: char) -> PatternSymbol {
    match character {
        '/' => PatternSymbol::Slash,
        other => PatternSymbol::Token(PatternToken::Is(other.to_ascii_lowercase())),
    }
}

/// Reads a class up to its end. One of a single character is that character; one with a slash is
/// taken for a slash.
fn class(rest: &mut std::str::Chars<'_>) -> PatternSymbol {
    let mut members = Vec::new();
    for member in rest.by_ref() {
        // At its beginning a bracket is a member, also behind what turns the class around.
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

/// The first group: where it begins and ends, and what is in it.
fn first_group(signs: &[PatternSymbol]) -> Option<(usize, usize, Vec<&[PatternSymbol]>)> {
    let start = signs.iter().position(|sign| *sign == PatternSymbol::Open)?;
    let (mut depth, mut from, mut alternatives) = (0_usize, start + 1, Vec::new());
    for (at, sign) in signs.iter().enumerate().skip(start) {
        match sign {
            PatternSymbol::Open => depth += 1,
            PatternSymbol::Close => depth -= 1,
            PatternSymbol::Token(_) | PatternSymbol::Slash | PatternSymbol::Comma => {}
        }
        let is_end = depth == 0;
        if is_end || (depth == 1 && *sign == PatternSymbol::Comma) {
            alternatives.push(signs.get(from..at)?);
            from = at + 1;
        }
        if is_end {
            return Some((start, at, alternatives));
        }
    }
    None
}

fn parts(signs: &[PatternSymbol]) -> Vec<PatternPart> {
    let mut parts = vec![PatternPart::default()];
    for sign in signs {
        let token = match sign {
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
    /// Its text, where it is only that.
    pub fn literal(&self) -> Option<String> {
        let character = |token: &PatternToken| match token {
            PatternToken::Is(character) => Some(*character),
            PatternToken::One | PatternToken::Star => None,
        };
        self.tokens.iter().map(character).collect()
    }

    /// Its text, with `stands_for` in place of what is open.
    pub fn text(&self, stands_for: impl Fn(&PatternToken) -> &'static str) -> String {
        let mut text = String::new();
        for token in &self.tokens {
            match token {
                PatternToken::Is(character) => text.push(*character),
                open => text.push_str(stands_for(open)),
            }
        }
        text
    }

    /// How many letters and digits it says.
    pub fn letters_and_digits(&self) -> usize {
        let says = |token: &&PatternToken| matches!(token, PatternToken::Is(c) if c.is_ascii_alphanumeric());
        self.tokens.iter().filter(says).count()
    }

    /// Whether it matches the whole of `name`, which is short and in lower case.
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
