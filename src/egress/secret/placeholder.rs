//! What stands for a secret in a sandbox.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_core::NetworkObject;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What every placeholder begins with.
pub const PREFIX: &str = "cofferdam_secret_";
/// The hexadecimal digits behind it.
pub const DIGITS: usize = 32;

/// The placeholders of one job, exec or workspace, by the names of their secrets. They are no secrets: only
/// its own proxy knows what they stand for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Placeholders(BTreeMap<String, String>);

impl Placeholders {
    /// A placeholder for each secret of `object`'s `secret_env`: the one of these, or a new one.
    #[must_use]
    pub fn kept_for(&self, object: &NetworkObject) -> Self {
        let names: BTreeSet<&String> = object.secret_env.values().collect();
        let kept = |name: &String| self.0.get(name).cloned().unwrap_or_else(random);
        Self(names.into_iter().map(|name| (name.clone(), kept(name))).collect())
    }

    /// New placeholders for `object`.
    pub fn new_for(object: &NetworkObject) -> Self {
        Self::default().kept_for(object)
    }

    /// The placeholder of the secret `name`.
    pub fn of(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    /// The variables of `secret_env`, each with its placeholder.
    pub fn environment(&self, object: &NetworkObject) -> BTreeMap<String, String> {
        let variable =
            |(variable, name): (&String, &String)| Some((variable.clone(), self.of(name)?));
        object.secret_env.iter().filter_map(variable).collect()
    }
}

fn random() -> String {
    format!("{PREFIX}{}", Uuid::new_v4().simple())
}

/// Where texts that could be a placeholder begin in `text`, each with that text.
pub fn candidates(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let bytes = PREFIX.len() + DIGITS;
    text.windows(bytes).enumerate().filter(|(_, window)| window.starts_with(PREFIX.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(names: &[(&str, &str)]) -> NetworkObject {
        let secret_env =
            names.iter().map(|(name, secret)| ((*name).to_owned(), (*secret).to_owned())).collect();
        NetworkObject { secret_env, ..NetworkObject::default() }
    }

    #[test]
    fn placeholders_of_names_that_stay_are_kept() {
        let first = Placeholders::new_for(&network(&[("A", "a"), ("A2", "a"), ("B", "b")]));
        let (a, b) = (first.of("a").unwrap(), first.of("b").unwrap());
        assert_ne!(a, b);
        let digits = a.strip_prefix("cofferdam_secret_").unwrap();
        assert!(
            digits.len() == 32 && digits.bytes().all(|digit| b"0123456789abcdef".contains(&digit)),
            "{a}"
        );
        let second = network(&[("A3", "a"), ("C", "c")]);
        let kept = first.kept_for(&second);
        assert_eq!((kept.of("a"), kept.of("b")), (Some(a.clone()), None));
        let environment = kept.environment(&second);
        assert_eq!((&environment["A3"], environment.len()), (&a, 2));
        assert_ne!(Placeholders::new_for(&second).of("a"), Some(a));
    }

    #[test]
    fn a_placeholder_is_found_wherever_it_stands() {
        let one = random();
        let text = format!("cofferdam_secret_{one}{one}0 cofferdam_secret_1");
        let found: Vec<usize> = candidates(text.as_bytes())
            .filter(|(_, found)| *found == one.as_bytes())
            .map(|(at, _)| at)
            .collect();
        assert_eq!(found, [PREFIX.len(), PREFIX.len() + one.len()]);
    }
}
