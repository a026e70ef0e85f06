//! A plan as the bytes that the init maps.

use std::ffi::CStr;

use crate::init::wire;

/// Bytes reserved for the header and the calls; texts and tables follow. The unused part is a hole
/// in the plan's memory file and takes no memory.
const CALLS_BYTES_MAX: usize = 128 << 10;

/// Where the texts and tables of a mapped plan are.
pub const DATA_ADDRESS: u64 = wire::PLAN_ADDRESS + CALLS_BYTES_MAX as u64;

/// A register of the plan: holds the result of one call for later ones.
pub type Register = u8;

/// The register that holds the sandbox's writable view of `/proc`.
pub const PROC_REGISTER: Register = 0;
/// The register for results that only the same step uses.
pub const SCRATCH_REGISTER: Register = 1;
/// The register that holds the sandbox's Landlock rules.
pub const RULES_REGISTER: Register = 2;
/// The first register for opened trees.
pub const TREES_REGISTER: Register = 3;

/// The working directory, where a call takes a directory.
pub const AT_FDCWD: i64 = libc::AT_FDCWD as i64;
/// The flag for calls that take a descriptor instead of a path.
pub const EMPTY_PATH: i64 = libc::AT_EMPTY_PATH as i64;

/// An argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arg {
    /// A number, or an address inside the plan.
    Value(u64),
    /// The result of an earlier call.
    Register(Register),
}

macro_rules! arg_from {
    ($($from:ty),*) => {$(
        impl From<$from> for Arg {
            #[allow(clippy::cast_sign_loss, clippy::cast_lossless, reason = "registers hold sign-extended words")]
            fn from(value: $from) -> Self { Self::Value(value as i64 as u64) }
        }
        impl From<&$from> for Arg {
            fn from(value: &$from) -> Self { (*value).into() }
        }
    )*};
}
arg_from!(i32, i64, u32);

impl From<u64> for Arg {
    fn from(value: u64) -> Self {
        Self::Value(value)
    }
}

impl From<usize> for Arg {
    fn from(value: usize) -> Self {
        Self::Value(value as u64)
    }
}

/// The plan does not fit: too many steps, or too much argv and environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("plan too large: argv and environment may take {} bytes", wire::PLAN_BYTES_MAX - CALLS_BYTES_MAX)]
pub struct PlanTooLarge;

/// Collects calls and the data they point to.
#[derive(Debug, Default)]
pub struct Encoder {
    calls: Vec<wire::Call>,
    data: Vec<u8>,
    step: u32,
    lists: Vec<usize>,
}

/// A plan ready to be written into a memory file: two pieces and their offsets.
#[derive(Debug, PartialEq, Eq)]
pub struct EncodedPlan {
    /// Header and calls, at offset 0.
    pub calls: Vec<u8>,
    /// Texts and tables, at [`EncodedPlan::DATA_OFFSET`].
    pub data: Vec<u8>,
}

impl EncodedPlan {
    /// Where `data` goes.
    pub const DATA_OFFSET: u64 = CALLS_BYTES_MAX as u64;
}

impl Encoder {
    /// An encoder whose data begins with `bytes` zeros, at [`DATA_ADDRESS`].
    pub fn with_area(bytes: usize) -> Self {
        Self { data: vec![0; bytes], ..Self::default() }
    }

    /// Starts a step: the calls that follow belong to it.
    pub fn begin_step(&mut self, step: u32) {
        self.step = step;
    }

    /// Ends a list: set-up, program, guard, in this order.
    pub fn end_list(&mut self) {
        self.lists.push(self.calls.len());
    }

    /// Appends a call whose result is not kept.
    pub fn call(&mut self, number: libc::c_long, args: &[Arg]) {
        self.call_into(wire::NO_REGISTER, number, args);
    }

    /// Appends a call whose result goes into `store`.
    pub fn call_into(&mut self, store: u8, number: libc::c_long, args: &[Arg]) {
        let mut call = wire::Call {
            number,
            args: [0; 6],
            registers: 0,
            store,
            on_error: wire::FAIL,
            step: self.step,
        };
        for (index, (slot, arg)) in call.args.iter_mut().zip(args).enumerate() {
            match arg {
                Arg::Value(value) => *slot = *value,
                Arg::Register(register) => {
                    *slot = u64::from(*register);
                    call.registers |= 1 << index;
                }
            }
        }
        self.calls.push(call);
    }

    /// Sets what happens when the call just appended fails.
    pub fn on_error(&mut self, on_error: u16) {
        if let Some(call) = self.calls.last_mut() {
            call.on_error = on_error;
        }
    }

    /// Appends the entry that reports the program as ready to exec.
    pub fn report_ready(&mut self) {
        self.call(wire::REPORT_READY, &[]);
    }

    /// Appends the entry that reports the sandbox as prepared.
    pub fn report_prepared(&mut self) {
        self.call(wire::REPORT_PREPARED, &[]);
    }

    /// Stores bytes, aligned for any table; returns their address.
    pub fn bytes(&mut self, bytes: &[u8]) -> Arg {
        self.data.resize(self.data.len().next_multiple_of(8), 0);
        let offset = self.data.len() as u64;
        self.data.extend_from_slice(bytes);
        Arg::Value(DATA_ADDRESS + offset)
    }

    /// Stores a text with its NUL.
    pub fn text(&mut self, text: &CStr) -> Arg {
        self.bytes(text.to_bytes_with_nul())
    }

    /// Stores 64-bit words.
    pub fn words(&mut self, words: &[u64]) -> Arg {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.bytes(&bytes)
    }

    /// Stores 32-bit words.
    pub fn half_words(&mut self, words: &[u32]) -> Arg {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.bytes(&bytes)
    }

    /// Stores a table of addresses and numbers. A register cannot be in one.
    pub fn pointers(&mut self, entries: &[Arg]) -> Arg {
        let words: Vec<u64> = entries
            .iter()
            .map(|entry| match entry {
                Arg::Value(value) => *value,
                Arg::Register(_) => 0,
            })
            .collect();
        self.words(&words)
    }

    /// Stores texts and the NULL-ended array of their addresses.
    pub fn string_array<T: AsRef<CStr>>(&mut self, texts: &[T]) -> Arg {
        let mut entries: Vec<Arg> = texts.iter().map(|text| self.text(text.as_ref())).collect();
        entries.push(Arg::Value(0));
        self.pointers(&entries)
    }

    /// Stores a `struct mount_attr`.
    pub fn mount_attributes(&mut self, set: u64, propagation: u64, userns_fd: Option<i32>) -> Arg {
        let userns_fd = userns_fd.and_then(|fd| u64::try_from(fd).ok()).unwrap_or(0);
        self.words(&[set, 0, propagation, userns_fd])
    }

    /// The finished plan.
    pub fn finish(mut self) -> Result<EncodedPlan, PlanTooLarge> {
        const CALL_BYTES: usize = size_of::<wire::Call>();
        const HEADER_BYTES: usize = size_of::<wire::Header>();
        let calls_bytes = HEADER_BYTES + self.calls.len() * CALL_BYTES;
        if calls_bytes > CALLS_BYTES_MAX || CALLS_BYTES_MAX + self.data.len() > wire::PLAN_BYTES_MAX
        {
            return Err(PlanTooLarge);
        }
        self.lists.resize(3, self.calls.len());
        let mut bytes = Vec::with_capacity(calls_bytes);
        bytes.extend_from_slice(&wire::PLAN_MAGIC.to_ne_bytes());
        let mut start = 0;
        for end in &self.lists {
            let address = wire::PLAN_ADDRESS + (HEADER_BYTES + start * CALL_BYTES) as u64;
            bytes.extend_from_slice(&address.to_ne_bytes());
            bytes.extend_from_slice(&((end - start) as u64).to_ne_bytes());
            start = *end;
        }
        for call in &self.calls {
            push_call(&mut bytes, call);
        }
        Ok(EncodedPlan { calls: bytes, data: self.data })
    }
}

/// Appends `call` in the layout of the init's `repr(C)` struct, which has no padding.
fn push_call(bytes: &mut Vec<u8>, call: &wire::Call) {
    bytes.extend_from_slice(&call.number.to_ne_bytes());
    for arg in call.args {
        bytes.extend_from_slice(&arg.to_ne_bytes());
    }
    bytes.extend_from_slice(&[call.registers, call.store]);
    bytes.extend_from_slice(&call.on_error.to_ne_bytes());
    bytes.extend_from_slice(&call.step.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_calls_have_the_layout_that_the_init_reads() {
        let mut out = Encoder::default();
        out.begin_step(7);
        out.call_into(3, 42, &[Arg::Register(2), 5_i32.into(), (-1_i32).into()]);
        out.end_list();
        out.report_ready();
        out.end_list();
        let plan = out.finish().unwrap();
        assert_eq!(plan.calls.len(), size_of::<wire::Header>() + 2 * size_of::<wire::Call>());
        let word = |at: usize| u64::from_ne_bytes(plan.calls[at..at + 8].try_into().unwrap());
        assert_eq!(word(0), wire::PLAN_MAGIC);
        assert_eq!((word(8), word(16)), (wire::PLAN_ADDRESS + 56, 1));
        assert_eq!((word(24), word(32)), (wire::PLAN_ADDRESS + 56 + 64, 1));
        assert_eq!(word(48), 0, "an unended list is empty");
        assert_eq!((word(56), word(64), word(72), word(80)), (42, 2, 5, u64::MAX));
        assert_eq!(plan.calls[56 + 56..56 + 64], [1, 3, 0, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn texts_end_in_nul_and_arrays_in_null() {
        let mut out = Encoder::default();
        let array = out.string_array(&[c"ab", c"c"]);
        let plan = out.finish().unwrap();
        assert_eq!(plan.data[..16], *b"ab\0\0\0\0\0\0c\0\0\0\0\0\0\0");
        let base = wire::PLAN_ADDRESS + CALLS_BYTES_MAX as u64;
        assert_eq!(array, Arg::Value(base + 16));
        let table: Vec<u64> = plan.data[16..]
            .chunks(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(table, [base, base + 8, 0]);
    }

    #[test]
    fn a_plan_beyond_its_bounds_is_refused() {
        let mut long = Encoder::default();
        long.bytes(&vec![0; wire::PLAN_BYTES_MAX]);
        assert_eq!(long.finish(), Err(PlanTooLarge));
        let mut many = Encoder::default();
        for _ in 0..CALLS_BYTES_MAX / size_of::<wire::Call>() {
            many.report_ready();
        }
        assert_eq!(many.finish(), Err(PlanTooLarge));
    }
}
