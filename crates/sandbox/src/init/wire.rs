//! The format of plans and records, which the supervisor and the init of a sandbox exchange.
//!
//! Compiled twice: into the library, which writes plans and reads records, and into the
//! freestanding init, which reads plans and writes records. It therefore uses only `core`.

/// Where the init maps its plan. The address is fixed, so that the supervisor can write absolute
/// pointers into the plan, and far from the addresses that the kernel chooses.
pub const PLAN_ADDRESS: u64 = 0x1000_0000;
/// The largest plan in bytes: program, arguments and environment together.
pub const PLAN_BYTES_MAX: usize = 8 << 20;
/// First word of a plan: "cofferd1" as little-endian bytes.
pub const PLAN_MAGIC: u64 = u64::from_le_bytes(*b"cofferd1");
/// How many registers a plan has for the results of calls.
pub const REGISTERS: usize = 128;

/// The descriptor on which the init writes its records.
pub const STATUS_FD: i32 = 3;
/// The descriptor that holds the plan.
pub const PLAN_FD: i32 = 4;
/// The descriptor from which the program's process reads its [`RELEASE_WORDS`].
pub const RELEASE_FD: i32 = 5;
/// The first descriptor after the fixed ones.
pub const FIRST_FREE_FD: i32 = 6;

/// Descriptors below this number belong to a program that a server starts: each arrives with the
/// number that it has in this list, and the server's own are above.
pub const PROGRAM_FDS_MAX: i32 = 64;

/// The words that resume the program: the soft and the hard limit of its CPU seconds.
pub const RELEASE_WORDS: usize = 2;

/// Start of a plan: three lists of calls, as pointers and lengths.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Header {
    /// [`PLAN_MAGIC`].
    pub magic: u64,
    /// The calls of PID 1 before the program's process exists.
    pub setup: CallList,
    /// The calls of the program's process, ending in exec. Without any, PID 1 makes those of `guard`
    /// and then serves requests for programs on [`RELEASE_FD`].
    pub program: CallList,
    /// The calls of PID 1 once the program's process exists.
    pub guard: CallList,
}

/// A list of [`Call`]s inside a plan.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CallList {
    /// Absolute address of the first call.
    pub address: u64,
    /// How many there are.
    pub calls: u64,
}

/// One system call of a plan.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The call's number, or [`REPORT_READY`] or [`REPORT_PREPARED`].
    pub number: i64,
    /// Its arguments; a bit in `registers` makes one an index into the register file.
    pub args: [u64; 6],
    /// Bit n: argument n is the index of a register.
    pub registers: u8,
    /// The register for the result, or [`NO_REGISTER`].
    pub store: u8,
    /// What happens when the call fails.
    pub on_error: u16,
    /// The index of the call's step in the plan, for the name of a failure.
    pub step: u32,
}

/// `Call::number` of an entry that is not a system call: write a [`READY`] record.
pub const REPORT_READY: i64 = -1;
/// `Call::number` of an entry that is not a system call: write a [`PREPARED`] record.
pub const REPORT_PREPARED: i64 = -2;
/// `Call::store` of a call whose result is dropped.
pub const NO_REGISTER: u8 = u8::MAX;

/// `Call::on_error`: report the failure and exit.
pub const FAIL: u16 = 0;
/// `Call::on_error`: accept a missing target (`ENOENT`), fail otherwise.
pub const SKIP_IF_MISSING: u16 = 1;
/// `Call::on_error`: continue with the next call.
pub const IGNORE: u16 = 2;
/// `Call::on_error`: the next call tries the program elsewhere (PATH search).
pub const TRY_NEXT: u16 = 3;

/// `Call::on_error`: the call must fail with `EACCES`; if it does not, that is the failure.
pub const MUST_BE_REFUSED: u16 = 4;
/// `Call::on_error`: the result must equal the third argument. A read that is cut short by the end
/// of its stream fails.
pub const WHOLE: u16 = 5;
/// `Call::on_error`: accept a target that is missing (`ENOENT`) or in a directory that others may
/// not enter (`EACCES`), fail otherwise.
pub const SKIP_IF_UNREACHABLE: u16 = 6;

/// A message of the init to its supervisor, sent in one write.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRecord {
    /// [`READY`], [`FAILED`], [`ENDED`] or [`PREPARED`].
    pub kind: u32,
    /// The step that failed.
    pub step: u32,
    /// The errno of a failure, the wait status of an end.
    pub value: i32,
    /// Always zero.
    pub reserved: u32,
    /// `CLOCK_MONOTONIC` in nanoseconds when the record was written.
    pub monotonic_ns: u64,
}

/// `StatusRecord::kind`: set-up is done and the next call is exec.
pub const READY: u32 = 1;
/// `StatusRecord::kind`: a call of step `step` failed with errno `value`.
pub const FAILED: u32 = 2;
/// `StatusRecord::kind`: the program ended with wait status `value`.
pub const ENDED: u32 = 3;
/// `StatusRecord::kind`: the sandbox is prepared and the program waits to be resumed.
pub const PREPARED: u32 = 4;
/// Bytes of a record on the pipe: below `PIPE_BUF`, so never split or interleaved.
pub const RECORD_BYTES: usize = size_of::<StatusRecord>();

/// A request to a server, sent in one message with the program's descriptors: those of every
/// sandbox from 0 to [`RELEASE_FD`], then those that its plan refers to.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramStart {
    /// How many descriptors come with it.
    pub descriptors: u32,
    /// 1 if the last one is the directory of a group to clone the process into, else 0.
    pub into_group: u32,
}

/// The answer of a server, with a descriptor of the process if it was cloned.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartReply {
    /// Why there is no process; 0 if there is one.
    pub errno: i32,
    /// The process, by its number in the sandbox.
    pub pid: i32,
}

/// Bytes of a request.
pub const START_REQUEST_BYTES: usize = size_of::<ProgramStart>();
/// Bytes of an answer.
pub const START_REPLY_BYTES: usize = size_of::<StartReply>();
