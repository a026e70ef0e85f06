//! What a test's report says, where its exit code does not decide.

mod ids;
mod junit;
mod reward;
pub mod xml;

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use crate::evaluation::patch::read_beneath;
use crate::evaluation::result::TestResult;
use crate::evaluation::task::{Grading, JunitGrading};
use crate::evaluation::trees::{PhaseTree, TMP};
use cofferdam_core::SetupFailure;
use cofferdam_tree::{StopCheck, remove_tree_until};

use self::junit::JunitReport;
pub use self::reward::RewardError;

/// The largest JUnit file, bytes.
const JUNIT_BYTES_MAX: u64 = 64 << 20;
/// The directory of the reward below `/logs`.
const VERIFIER: &str = "verifier";

/// What decides, where the exit code of a test does not.
#[derive(Debug)]
pub enum Reported {
    /// Its exit code decides.
    Nothing,
    /// The number that it wrote.
    Reward(Result<f64, RewardError>),
    /// A result for each id of the task.
    Ids(Vec<TestResult>),
}

impl Reported {
    /// The results that count, and the reward, where `script` is the result of the test itself.
    pub fn results(
        self,
        script: TestResult,
    ) -> (Vec<TestResult>, Result<Option<f64>, RewardError>) {
        match self {
            Self::Nothing => (vec![script], Ok(None)),
            Self::Reward(reward) => (vec![script], reward.map(Some)),
            Self::Ids(results) => (results, Ok(None)),
        }
    }
}

/// Removes what stands where a test is to write its report, before it runs.
///
/// # Errors
/// It cannot be removed, or `stop` ended it.
pub fn make_room(
    tree: &mut PhaseTree,
    grading: &Grading,
    stop: StopCheck<'_>,
) -> Result<(), SetupFailure> {
    match grading {
        Grading::ExitCodes => Ok(()),
        // Of the base, no sandbox has seen the directory: it is new.
        Grading::Reward => tree.show_logs(VERIFIER),
        Grading::Junit(JunitGrading { report, .. }) => {
            let below = below_tmp(report);
            let name = below.split('/').next().unwrap_or_default();
            let tmp = tree.open_directory(TMP)?;
            let removed = remove_tree_until(tmp.as_fd(), OsStr::from_bytes(name.as_bytes()), stop)
                .map_err(|error| SetupFailure::from_words("remove report", error.to_string()))?;
            match removed.left {
                0 => Ok(()),
                left => Err(SetupFailure::from_words("remove report", format!("{left} are left"))),
            }
        }
    }
}

/// Reads what a test has written, when its sandbox is dead.
pub fn read_report(tree: &PhaseTree, grading: &Grading, script: &TestResult) -> Reported {
    match grading {
        Grading::ExitCodes => Reported::Nothing,
        Grading::Reward => Reported::Reward(reward::read_reward(tree, VERIFIER)),
        Grading::Junit(JunitGrading { report, ids, .. }) => {
            let path = format!("{TMP}/{}", below_tmp(report));
            let bytes = read_beneath(tree.root(), path.as_bytes(), JUNIT_BYTES_MAX);
            let read = match bytes {
                Some(bytes) => JunitReport::parse(&bytes),
                None => {
                    Err(format!("there is no file {report} of at most {JUNIT_BYTES_MAX} bytes"))
                }
            };
            Reported::Ids(ids::grade_ids(ids, &read, script))
        }
    }
}

/// The path of a report below `/tmp`, where reading the task has checked that it is.
fn below_tmp(report: &str) -> &str {
    report.strip_prefix("/tmp").unwrap_or(report).trim_start_matches('/')
}
