//! Finds what a wrapper starts among its words, or finds that it cannot be told.

use super::PATH_DIRECTORIES;
use super::wrapper_table::{MACHINES, Means, Operand, Then, Without, Wrapper};

/// How many words of a wrapper are looked through.
const WORDS_MAX: usize = 10_000;
/// What find(1) starts a command behind.
const EXEC_WORDS: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];
/// Characters of a text to be split that mean more than themselves, or divide words for some only.
const SPLIT_SPECIAL: [char; 6] = ['\\', '"', '\'', '$', '#', '\u{b}'];

/// A command with its words, and what is known of how it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Invocation {
    pub words: Vec<String>,
    pub setting: Setting,
}

/// How a command is started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Setting {
    /// Whether more words may come behind those that are known.
    pub is_open: bool,
    /// Texts in words that stand for something else.
    pub replaced: Vec<String>,
    /// Whether it is started in another directory than the job.
    pub is_moved: bool,
    /// Whether bare names are looked for outside the fixed PATH.
    pub is_foreign_path: bool,
    /// Names of variables that wrappers have set.
    pub variables: Vec<String>,
}

/// What a wrapper comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unwrapped {
    /// Nothing is started but these.
    Commands(Vec<Invocation>),
    /// A shell is started.
    Shell,
    /// What is started cannot be told.
    Untold,
}

/// Whether every directory of `path`, a value of PATH, is one of the fixed.
pub(super) fn is_fixed_path(path: &str) -> bool {
    path.split(':').all(|directory| {
        let directory = directory.strip_suffix('/').unwrap_or(directory);
        PATH_DIRECTORIES.contains(&directory)
    })
}

/// What the wrapper of `row` starts, called with `arguments`: at most `most` commands.
pub(super) fn unwrap(
    row: &Wrapper,
    arguments: &[String],
    setting: &Setting,
    most: usize,
) -> Unwrapped {
    if arguments.len() > WORDS_MAX {
        return Unwrapped::Untold;
    }
    match row.then {
        Then::Untold => Unwrapped::Untold,
        Then::Exec => find_exec(arguments, setting, most),
        Then::Becomes => becomes(arguments, setting),
        Then::Starts | Then::Shell => {
            let rest = arguments.iter().rev().cloned().collect();
            let reader = Reader { row, rest, setting: setting.clone(), is_direct: false };
            reader.read().unwrap_or_else(|stop| stop)
        }
    }
}

fn stands_for_more(word: &str, setting: &Setting) -> bool {
    setting.replaced.iter().any(|text| word.contains(text.as_str()))
}

/// One of many programs is the one that its first word names.
fn becomes(arguments: &[String], setting: &Setting) -> Unwrapped {
    match arguments.first() {
        None if setting.is_open => Unwrapped::Untold,
        None => Unwrapped::Commands(Vec::new()),
        Some(word) if word.starts_with('-') || stands_for_more(word, setting) => Unwrapped::Untold,
        Some(_) => {
            let (words, setting) = (arguments.to_vec(), setting.clone());
            Unwrapped::Commands(vec![Invocation { words, setting }])
        }
    }
}

/// Every `-exec` counts, also where it may be another's word.
fn find_exec(arguments: &[String], setting: &Setting, most: usize) -> Unwrapped {
    let is_exec = |word: &&String| EXEC_WORDS.contains(&word.as_str());
    if arguments.iter().filter(is_exec).count() > most {
        return Unwrapped::Untold;
    }
    if setting.is_open || arguments.iter().any(|word| stands_for_more(word, setting)) {
        return Unwrapped::Untold;
    }
    let mut commands = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        if !is_exec(&word) {
            continue;
        }
        let words = arguments.iter().skip(at + 1).take_while(|word| *word != ";");
        let words: Vec<String> = words.cloned().collect();
        let mut setting = setting.clone();
        setting.is_moved |= word.ends_with("dir");
        setting.replaced.push("{}".to_owned());
        if words.first().is_some_and(|word| stands_for_more(word, &setting)) {
            return Unwrapped::Untold;
        }
        if !words.is_empty() {
            commands.push(Invocation { words, setting });
        }
    }
    Unwrapped::Commands(commands)
}

/// Reads a wrapper's words up to the command.
struct Reader<'a> {
    row: &'a Wrapper,
    /// The words to come, the next one last.
    rest: Vec<String>,
    setting: Setting,
    is_direct: bool,
}

/// An option's value, as its wrapper's row has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    None,
    Next,
    SameWord,
}

impl Reader<'_> {
    fn read(mut self) -> Result<Unwrapped, Unwrapped> {
        let (mut operands, mut no_more_options) = (self.row.operands.iter(), false);
        while let Some(word) = self.next()? {
            let is_option = if word == "-" {
                self.row.short.starts_with('-')
            } else {
                word.starts_with('-') && !no_more_options
            };
            if is_option {
                no_more_options |= word == "--";
                self.option(&word)?;
            } else if self.row.assigns && word.contains('=') {
                self.assignment(&word)?;
            } else if let Some(operand) = operands.next() {
                is_operand(*operand, &word).then_some(()).ok_or(Unwrapped::Untold)?;
            } else {
                return self.command(word);
            }
        }
        if self.setting.is_open {
            return Err(Unwrapped::Untold);
        }
        Ok(match self.row.without {
            Without::Nothing => Unwrapped::Commands(Vec::new()),
            Without::Shell => Unwrapped::Shell,
            Without::Command(name) => {
                let words = vec![name.to_owned()];
                Unwrapped::Commands(vec![Invocation { words, setting: self.setting }])
            }
        })
    }

    fn next(&mut self) -> Result<Option<String>, Unwrapped> {
        match self.rest.pop() {
            Some(word) if stands_for_more(&word, &self.setting) => Err(Unwrapped::Untold),
            word => Ok(word),
        }
    }

    fn command(mut self, word: String) -> Result<Unwrapped, Unwrapped> {
        // No program of the fixed PATH is called so: some version of the wrapper reads on.
        if word.starts_with('-') {
            return Err(Unwrapped::Untold);
        }
        if self.row.then == Then::Shell && !self.is_direct {
            return Err(Unwrapped::Shell);
        }
        self.setting.is_open |= self.row.appends;
        self.setting.is_foreign_path |= self.row.elsewhere;
        let words = std::iter::once(word).chain(self.rest.into_iter().rev()).collect();
        Ok(Unwrapped::Commands(vec![Invocation { words, setting: self.setting }]))
    }

    fn option(&mut self, word: &str) -> Result<(), Unwrapped> {
        if word == "--" || word == "-" {
            return Ok(());
        }
        if let Some(long) = word.strip_prefix("--") {
            return self.long(long);
        }
        let letters = word.strip_prefix('-').unwrap_or(word);
        if self.row.short.contains('#') && letters.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(());
        }
        for (at, letter) in letters.char_indices() {
            let rest = letters.get(at + letter.len_utf8()..).unwrap_or_default();
            let value = short_value(self.row.short, letter).ok_or(Unwrapped::Untold)?;
            let given = match value {
                Value::None => None,
                Value::Next if rest.is_empty() => Some(self.value()?),
                Value::Next => Some(rest.to_owned()),
                Value::SameWord => Some(rest.to_owned()).filter(|rest| !rest.is_empty()),
            };
            self.heed(letter.encode_utf8(&mut [0; 4]), given)?;
            if value != Value::None {
                break;
            }
        }
        Ok(())
    }

    /// An option of a word: as the row has it, never shortened.
    fn long(&mut self, text: &str) -> Result<(), Unwrapped> {
        let (name, given) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let mut known = self.row.long.split(' ').filter(|known| !known.is_empty());
        let known = known.find(|known| known.trim_end_matches('=') == name);
        let has_value = known.ok_or(Unwrapped::Untold)?.ends_with('=');
        let given = if has_value && given.is_none() { Some(self.value()?) } else { given };
        self.heed(name, given)
    }

    /// The next word, where an option needs one.
    fn value(&mut self) -> Result<String, Unwrapped> {
        self.next()?.ok_or(Unwrapped::Untold)
    }

    fn heed(&mut self, option: &str, value: Option<String>) -> Result<(), Unwrapped> {
        let mut means = self.row.means.iter();
        match means.find(|(name, _)| *name == option).map(|(_, means)| means) {
            None => {}
            Some(Means::Moves) => self.setting.is_moved = true,
            Some(Means::Direct) => self.is_direct = true,
            Some(Means::Replaces) => {
                self.setting.replaced.push(value.unwrap_or_else(|| "{}".to_owned()));
            }
            Some(Means::Splits) => {
                let text = value.unwrap_or_default();
                if text.contains(SPLIT_SPECIAL) {
                    return Err(Unwrapped::Untold);
                }
                self.rest.extend(text.split_ascii_whitespace().rev().map(str::to_owned));
            }
        }
        Ok(())
    }

    fn assignment(&mut self, word: &str) -> Result<(), Unwrapped> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        if name.is_empty() {
            return Err(Unwrapped::Untold);
        }
        if name == "PATH" {
            self.setting.is_foreign_path = !is_fixed_path(value);
        }
        self.setting.variables.push(name.to_owned());
        Ok(())
    }
}

fn is_operand(operand: Operand, word: &str) -> bool {
    match operand {
        Operand::Any => true,
        Operand::Number => word.bytes().all(|byte| byte.is_ascii_digit()),
        Operand::Machine => MACHINES.contains(&word),
    }
}

fn short_value(short: &str, letter: char) -> Option<Value> {
    if matches!(letter, ':' | '#' | '-') {
        return None;
    }
    let (_, after) = short.split_once(letter)?;
    Some(match after.as_bytes() {
        [b':', b':', ..] => Value::SameWord,
        [b':', ..] => Value::Next,
        _ => Value::None,
    })
}
