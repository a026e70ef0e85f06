//! The program: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    cofferdam::cli::main(std::env::args_os())
}
