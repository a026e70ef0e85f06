//! What the five targets have in common: each hands its input to a property of `cofferdam`.

/// Makes a program of the property `$check`.
///
/// Built without cargo-fuzz there is no fuzzer to link, and the program only says so.
#[macro_export]
macro_rules! target {
    ($check:path) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|input: &[u8]| $check(input));

        #[cfg(not(fuzzing))]
        fn main() -> std::process::ExitCode {
            eprintln!("this is a fuzz target: see docs/fuzzing.md");
            std::process::ExitCode::FAILURE
        }
    };
}
