//! The number that a test of Harbor writes.

use std::os::fd::AsFd;

use nix::errno::Errno;
use serde::Deserialize;

use crate::evaluation::patch::read_beneath;
use crate::evaluation::trees::{LOGS, PhaseTree};
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;

/// The longest file, bytes.
const REWARD_BYTES_MAX: u64 = 4096;
/// Where tests write it: the first that is there counts.
const FILES: [&str; 2] = ["reward.txt", "reward.json"];

/// Why there is no reward.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct RewardError {
    /// The file as the test sees it.
    pub file: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RewardObject {
    reward: f64,
}

/// Reads the reward from `directory` below the logs of `tree`, in which nothing runs.
///
/// # Errors
/// No file has a number from 0 to 1.
pub fn read_reward(tree: &PhaseTree, directory: &str) -> Result<f64, RewardError> {
    let shown = |name: &str| format!("/{LOGS}/{directory}/{name}");
    let opened = tree.open_directory(&format!("{LOGS}/{directory}"));
    for name in FILES {
        let error = |reason| RewardError { file: shown(name), reason };
        let Ok(opened) = &opened else { break };
        let status = fstatat(opened.as_fd(), name, AtFlags::AT_SYMLINK_NOFOLLOW);
        if status == Err(Errno::ENOENT) {
            continue;
        }
        let bytes = read_beneath(opened.as_fd(), name.as_bytes(), REWARD_BYTES_MAX)
            .ok_or_else(|| error("it is no regular file, or too long"))?;
        let text = String::from_utf8(bytes).map_err(|_| error("it is not UTF-8"))?;
        return parse_reward(name, &text).map_err(error);
    }
    Err(RewardError { file: shown("reward.txt"), reason: "the test did not write it" })
}

fn parse_reward(name: &str, text: &str) -> Result<f64, &'static str> {
    let number = if name.ends_with(".json") {
        serde_json::from_str::<RewardObject>(text)
            .map(|object| object.reward)
            .map_err(|_| "it is not an object with the key reward alone, a number")?
    } else {
        text.trim().parse::<f64>().map_err(|_| "it is not a number")?
    };
    match (0.0..=1.0).contains(&number) {
        true => Ok(number),
        false => Err("it is not a number from 0 to 1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reward_is_a_number_from_0_to_1_and_nothing_else() {
        for (name, text, reward) in [
            ("reward.txt", "1\n", Some(1.0)),
            ("reward.txt", " 0.25 ", Some(0.25)),
            ("reward.txt", "0", Some(0.0)),
            ("reward.txt", "", None),
            ("reward.txt", "1.01", None),
            ("reward.txt", "-0.5", None),
            ("reward.txt", "nan", None),
            ("reward.txt", "inf", None),
            ("reward.txt", "1 1", None),
            ("reward.json", "{\"reward\": 1}", Some(1.0)),
            ("reward.json", "{\"reward\": 0.5}", Some(0.5)),
            ("reward.json", "{\"reward\": true}", None),
            ("reward.json", "{\"reward\": \"1\"}", None),
            ("reward.json", "{\"reward\": 1, \"other\": 2}", None),
            ("reward.json", "{\"reward\": 1, \"reward\": 0}", None),
            ("reward.json", "{}", None),
            ("reward.json", "1", None),
        ] {
            assert_eq!(parse_reward(name, text).ok(), reward, "{name}: {text}");
        }
    }
}
