//! A row of the table, and a group of rows.

/// One variable of the environment. Texts are Markdown.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What holds if it is not set.
    pub default: DefaultValue,
    /// A value for the example file, if that is not the default.
    pub example: &'static str,
    /// The format of its value, as an error message names it.
    pub wanted: &'static str,
    /// One sentence for every document.
    pub meaning: &'static str,
    /// Further sentences for `docs/configuration.md` only.
    pub details: &'static str,
}

/// What holds if a variable is not set.
#[derive(Debug, Clone, Copy)]
pub enum DefaultValue {
    /// As if the variable had this value.
    Value(&'static str),
    /// What no value expresses, described.
    InWords(&'static str),
    /// Nothing.
    Absent,
}

/// Variables that belong together.
#[derive(Debug, Clone, Copy)]
pub struct VariableGroup {
    /// Its heading.
    pub title: &'static str,
    /// What holds for all of them; may be empty.
    pub introduction: &'static str,
    /// In the order of the documents.
    pub variables: &'static [Variable],
}

impl Variable {
    /// A row of which only the name is known.
    pub const fn named(name: &'static str) -> Self {
        let default = DefaultValue::Absent;
        Self { name, default, example: "", wanted: "", meaning: "", details: "" }
    }

    /// The value that it has if it is not set.
    pub fn default_value(&self) -> Option<&'static str> {
        match self.default {
            DefaultValue::Value(value) => Some(value),
            DefaultValue::InWords(_) | DefaultValue::Absent => None,
        }
    }

    /// A value that it may have.
    pub fn example_value(&self) -> &'static str {
        if self.example.is_empty() {
            self.default_value().unwrap_or_default()
        } else {
            self.example
        }
    }
}

/// Defines a constant for each variable, named as it is, and one for the group of them all. This
/// way no variable can be read that its group, and so the documents, leave out.
macro_rules! group {
    (
        $(#[$doc:meta])*
        $group:ident: $title:literal, $introduction:literal;
        $($name:ident { $($field:ident: $value:expr,)* })*
    ) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            pub const $name: Variable = {
                let mut variable = Variable::named(stringify!($name));
                $(variable.$field = $value;)*
                variable
            };
        )*
        $(#[$doc])*
        pub const $group: VariableGroup = VariableGroup {
            title: $title,
            introduction: $introduction,
            variables: &[$($name),*],
        };
    };
}
pub(super) use group;
