//! The steps of a plan, as data: each has a name for errors and encodes to system calls.

pub mod identity;
pub mod mount;
pub mod process;
pub mod restrict;
pub mod start;

use self::identity::IdentityStep;
use self::mount::MountStep;
use self::process::ProcessStep;
use self::restrict::RestrictStep;
use self::start::StartStep;
use crate::plan::encode::Encoder;

/// One step. Paths without a leading slash are relative to the sandbox's new root, which
/// is the working directory from [`MountStep::EnterRoot`] on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Mounts, masks, and the change of the root.
    Mount(MountStep),
    /// Groups, namespaces, limits and descriptors.
    Process(ProcessStep),
    /// Ids, capabilities and the user namespace.
    Identity(IdentityStep),
    /// Landlock rules and seccomp filters.
    Restrict(RestrictStep),
    /// Waits, reports, and the program.
    Start(StartStep),
}

impl Step {
    /// The step's name in an error: the operation and its target.
    pub fn name(&self) -> String {
        match self {
            Self::Mount(step) => step.name(),
            Self::Process(step) => step.name(),
            Self::Identity(step) => step.name(),
            Self::Restrict(step) => step.name(),
            Self::Start(step) => step.name(),
        }
    }

    /// Appends the step's system calls.
    pub fn encode(&self, out: &mut Encoder) {
        match self {
            Self::Mount(step) => step.encode(out),
            Self::Process(step) => step.encode(out),
            Self::Identity(step) => step.encode(out),
            Self::Restrict(step) => step.encode(out),
            Self::Start(step) => step.encode(out),
        }
    }
}

macro_rules! step_from {
    ($($family:ident($step:ty)),*) => {$(
        impl From<$step> for Step {
            fn from(step: $step) -> Self {
                Self::$family(step)
            }
        }
    )*};
}
step_from!(
    Mount(MountStep),
    Process(ProcessStep),
    Identity(IdentityStep),
    Restrict(RestrictStep),
    Start(StartStep)
);
