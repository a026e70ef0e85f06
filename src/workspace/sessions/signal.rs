//! The names of signals, and who gets them.

use std::str::FromStr;

use nix::sys::signal::Signal;

use crate::workspace::error::EngineError;

/// Who gets a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTarget {
    /// The main process.
    Main(i32),
    /// The foreground process group of the terminal, as for a key.
    Foreground(i32),
}

/// Finds the signal `name` for a session, with or without `SIG`, or its number.
pub fn target_of(name: &str, is_tty: bool) -> Result<SignalTarget, EngineError> {
    let signal = named_signal(name)?;
    let of_a_key = matches!(signal, Signal::SIGINT | Signal::SIGQUIT | Signal::SIGTSTP);
    Ok(if is_tty && of_a_key {
        SignalTarget::Foreground(signal as i32)
    } else {
        SignalTarget::Main(signal as i32)
    })
}

/// The signal `name`.
///
/// # Errors
/// No signal has this name.
pub fn named_signal(name: &str) -> Result<Signal, EngineError> {
    let upper = name.to_ascii_uppercase();
    let full = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    let by_number = || Signal::try_from(name.parse::<i32>().ok()?).ok();
    let signal = Signal::from_str(&full).ok().or_else(by_number);
    signal.ok_or_else(|| {
        EngineError::invalid("signal", "want the name of a signal, such as INT or TERM")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_signal_the_foreground_of_a_terminal_and_everything_else_the_main_process() {
        for (name, tty, target) in [
            ("INT", true, Some(SignalTarget::Foreground(libc::SIGINT))),
            ("SIGQUIT", true, Some(SignalTarget::Foreground(libc::SIGQUIT))),
            ("tstp", true, Some(SignalTarget::Foreground(libc::SIGTSTP))),
            ("INT", false, Some(SignalTarget::Main(libc::SIGINT))),
            ("SIGTERM", true, Some(SignalTarget::Main(libc::SIGTERM))),
            ("9", true, Some(SignalTarget::Main(libc::SIGKILL))),
            ("USR1", false, Some(SignalTarget::Main(libc::SIGUSR1))),
            ("", false, None),
            ("SIG", false, None),
            ("0", false, None),
            ("65", false, None),
            ("NOPE", true, None),
        ] {
            assert_eq!(target_of(name, tty).ok(), target, "{name}");
        }
    }
}
