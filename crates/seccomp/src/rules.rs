//! The rules of a profile file for system calls, as typed values.

use nix::errno::Errno;
use serde::Deserialize;

/// The `[seccomp]` section of a profile file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The actions for calls that no entry decides; if absent, the extended profile decides.
    pub otherwise: Option<Otherwise>,
    /// The layers, in the order in which they are checked.
    #[serde(default, rename = "layer")]
    pub layers: Vec<RuleLayer>,
}

/// The actions for calls that no entry decides.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Otherwise {
    /// For calls in the architecture's table.
    pub known: Action,
    /// For all other numbers: calls newer than the table.
    pub unknown: Action,
    /// The reason for these actions.
    #[serde(default)]
    pub reason: String,
}

/// A named group of entries.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleLayer {
    /// The name that findings refer to.
    pub name: String,
    /// The circumstance in which the layer does not apply; if absent, it always applies.
    pub unless: Option<Circumstance>,
    /// The entries, in the order in which they are checked.
    #[serde(default, rename = "entry")]
    pub entries: Vec<RuleEntry>,
}

/// A property of a sandbox that its filter depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Circumstance {
    /// The program can write to files of the host.
    WritableBinds,
}

/// One action for one or more calls.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleEntry {
    /// The calls, by name. Names that only other architectures have are skipped.
    #[serde(default)]
    pub syscalls: Vec<String>,
    /// Calls that may be missing from all tables. Missing names are skipped.
    #[serde(default)]
    pub optional: Vec<String>,
    /// The action for these calls.
    pub action: Action,
    /// Conditions on the arguments. All must hold; without conditions the entry always matches.
    #[serde(default)]
    pub when: Vec<Condition>,
    /// The reason for the entry.
    #[serde(default)]
    pub reason: String,
}

impl RuleEntry {
    /// The names of all calls of the entry.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.syscalls.iter().chain(&self.optional).map(String::as_str)
    }
}

/// What the kernel does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The call is executed.
    Allow,
    /// The call is not executed and fails with this error.
    Errno(#[serde(deserialize_with = "errno_by_name")] Errno),
    /// The call is not executed and returns 0.
    Succeed,
    /// The whole process dies as if by `SIGSYS`.
    KillProcess,
    /// The call is reported to the supervisor. Only [`super::locks`] uses it; a profile cannot.
    #[serde(skip)]
    Notify,
}

/// The verdicts of a filter: the kernel's `SECCOMP_RET_*`.
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;

impl Action {
    /// The value that a filter returns for this action.
    pub fn verdict(self) -> u32 {
        match self {
            Self::Allow => ALLOW,
            Self::Errno(errno) => ERRNO | (errno as i32).unsigned_abs(),
            Self::Succeed => ERRNO,
            Self::KillProcess => KILL_PROCESS,
            Self::Notify => USER_NOTIF,
        }
    }
}

/// The errors that a profile may name.
const ERRNO_NAMES: [(&str, Errno); 10] = [
    ("EACCES", Errno::EACCES),
    ("EAFNOSUPPORT", Errno::EAFNOSUPPORT),
    ("EINVAL", Errno::EINVAL),
    ("ENODEV", Errno::ENODEV),
    ("ENOENT", Errno::ENOENT),
    ("ENOSYS", Errno::ENOSYS),
    ("ENOTTY", Errno::ENOTTY),
    ("EOPNOTSUPP", Errno::EOPNOTSUPP),
    ("EPERM", Errno::EPERM),
    ("EPROTONOSUPPORT", Errno::EPROTONOSUPPORT),
];

fn errno_by_name<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Errno, D::Error> {
    let name = String::deserialize(from)?;
    ERRNO_NAMES.iter().find(|(known, _)| *known == name).map(|(_, errno)| *errno).ok_or_else(|| {
        let expected = ERRNO_NAMES.map(|(known, _)| known).join(", ");
        serde::de::Error::custom(format!("unknown errno {name:?}, expected one of {expected}"))
    })
}

/// A condition on one argument: the masked argument equals one of the values.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawCondition")]
pub struct Condition {
    /// The argument, 0 to 5.
    pub arg: u8,
    /// The part of the argument that the kernel reads.
    pub width: Width,
    /// The bits that are compared. Bits beyond the width are zero.
    pub mask: u64,
    /// The values, each within the mask; never empty.
    pub values: Vec<u64>,
}

/// How many bits of an argument the kernel reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// An `int`: the upper half of the register is ignored.
    Bits32,
    /// A `long` or a pointer.
    Bits64,
}

/// Why a condition is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// A call has six arguments.
    #[error("arg {0} is not one of 0 to 5")]
    Arg(u8),
    /// The width must be 32 or 64.
    #[error("width {0} is neither 32 nor 64")]
    Width(u8),
    /// There must be exactly one of `eq` and `one_of`.
    #[error("exactly one of eq and one_of is needed, with at least one value")]
    Operator,
    /// The mask is zero or has bits that the kernel does not read.
    #[error("mask {0:#x} is empty or wider than the argument")]
    Mask(u64),
    /// The condition could never hold.
    #[error("value {0:#x} has bits outside the mask or the width")]
    Value(u64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCondition {
    arg: u8,
    width: u8,
    mask: Option<u64>,
    eq: Option<u64>,
    one_of: Option<Vec<u64>>,
}

impl TryFrom<RawCondition> for Condition {
    type Error = ConditionError;

    fn try_from(raw: RawCondition) -> Result<Self, ConditionError> {
        if raw.arg > 5 {
            return Err(ConditionError::Arg(raw.arg));
        }
        let (width, all_bits) = match raw.width {
            32 => (Width::Bits32, u64::from(u32::MAX)),
            64 => (Width::Bits64, u64::MAX),
            other => return Err(ConditionError::Width(other)),
        };
        let values = match (raw.eq, raw.one_of) {
            (Some(value), None) => vec![value],
            (None, Some(values)) if !values.is_empty() => values,
            _ => return Err(ConditionError::Operator),
        };
        let mask = raw.mask.unwrap_or(all_bits);
        if mask == 0 || mask & !all_bits != 0 {
            return Err(ConditionError::Mask(mask));
        }
        match values.iter().find(|value| **value & !mask != 0) {
            Some(value) => Err(ConditionError::Value(*value)),
            None => Ok(Self { arg: raw.arg, width, mask, values }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(text: &str) -> Result<Condition, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn conditions_parse() {
        let eq = condition("arg = 1\nwidth = 32\neq = 0x5412").unwrap();
        let want =
            Condition { arg: 1, width: Width::Bits32, mask: 0xffff_ffff, values: vec![0x5412] };
        assert_eq!(eq, want);
        let masked = condition("arg = 0\nwidth = 64\nmask = 0xf\none_of = [1, 2]").unwrap();
        let want = Condition { arg: 0, width: Width::Bits64, mask: 0xf, values: vec![1, 2] };
        assert_eq!(masked, want);
    }

    #[test]
    fn invalid_conditions_are_refused() {
        let table = [
            ("arg = 6\nwidth = 32\neq = 1", ConditionError::Arg(6)),
            ("arg = 0\nwidth = 16\neq = 1", ConditionError::Width(16)),
            ("arg = 0\nwidth = 32", ConditionError::Operator),
            ("arg = 0\nwidth = 32\none_of = []", ConditionError::Operator),
            ("arg = 0\nwidth = 32\neq = 1\none_of = [1]", ConditionError::Operator),
            ("arg = 0\nwidth = 32\neq = 0x1_0000_0000", ConditionError::Value(1 << 32)),
            ("arg = 0\nwidth = 32\nmask = 0x1_0000_0000\neq = 0", ConditionError::Mask(1 << 32)),
            ("arg = 0\nwidth = 64\nmask = 0\neq = 0", ConditionError::Mask(0)),
            ("arg = 0\nwidth = 64\nmask = 0xf\none_of = [1, 16]", ConditionError::Value(16)),
        ];
        for (text, want) in table {
            assert_eq!(condition(text), Err(want.to_string()), "{text}");
        }
        for text in ["arg = 0\nwidth = 64\neq = -1", "arg = 0\nwidth = 64\neq = 1\nne = 1"] {
            assert!(condition(text).is_err(), "{text}");
        }
    }

    #[test]
    fn actions_parse() {
        #[derive(Deserialize)]
        struct Holder {
            action: Action,
        }
        let action = |text: &str| {
            toml::from_str::<Holder>(text).map(|holder| holder.action).map_err(|e| e.to_string())
        };
        assert_eq!(action(r#"action = "allow""#), Ok(Action::Allow));
        assert_eq!(action(r#"action = "kill_process""#), Ok(Action::KillProcess));
        assert_eq!(action(r#"action = "succeed""#), Ok(Action::Succeed));
        assert_eq!(action(r#"action = { errno = "ENOSYS" }"#), Ok(Action::Errno(Errno::ENOSYS)));
        for bad in [r#"action = { errno = "EPERMM" }"#, r#"action = "kill""#, "action = 1"] {
            assert!(action(bad).is_err(), "{bad}");
        }
    }
}
