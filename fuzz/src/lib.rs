//! Shared by the fuzz targets: each passes its input to a property.

/// Defines the program that fuzzes the property `$check`.
///
/// Without cargo-fuzz there is no fuzzer to link, and the program only prints a hint.
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
