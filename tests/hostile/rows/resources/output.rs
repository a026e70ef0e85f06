//! Attacks through stdout and stderr.

use std::time::{Duration, Instant};

use cofferdam_test_server::client::Answer;
use cofferdam_test_server::host::resident_bytes;
use serde_json::json;

use crate::Unexercised;
use crate::observe::outcome_is;
use crate::probe::Probe;
use crate::punctual::assert_is_answered_in_time;
use crate::target::Target;

/// The default limit of each stream in bytes (`RUN_OUTPUT_MAX`).
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// Half the duration of a flood that is not cut off.
const CUT_WITHIN: Duration = Duration::from_secs(5);
/// Memory that the server's allocator may keep after all these floods.
const GROWTH_BYTES_MAX: u64 = 32 << 20;

fn flood(how: &str, out: &str, err: &str) -> Probe {
    let program = Probe::python_with_native("with_pipes", "flood");
    program.arg(true).arg("/tmp/probe").arg(how).arg(out).arg(err)
}

/// Asserts that a flood is refused soon after it began.
#[track_caller]
fn assert_is_cut(target: &Target, probe: &Probe) {
    let start = Instant::now();
    assert_too_large(&target.run(probe));
    let took = start.elapsed();
    assert!(took < CUT_WITHIN, "cut after {took:?}");
}

#[track_caller]
fn assert_too_large(answer: &Answer) {
    answer.assert_json(413, r#"{"error":"output too large"}"#);
    outcome_is(answer, "output_limit");
}

pub fn floods(target: &Target) -> Result<(), Unexercised> {
    let resident = || target.own().ok().map(|own| resident_bytes(own.service.pid()));
    let before = resident();
    for how in ["block", "byte"] {
        for (out, err) in [("out", "-1"), ("-1", "err"), ("out", "err")] {
            assert_is_cut(target, &flood(how, out, err));
        }
    }
    if let (Some(before), Some(after)) = (before, resident()) {
        assert!(after <= before + GROWTH_BYTES_MAX, "{before} bytes became {after}");
    }
    Ok(())
}

pub fn pipes_held(target: &Target) -> Result<(), Unexercised> {
    for how in ["vmsplice", "splice", "children", "stay"] {
        assert_is_cut(target, &flood(how, "out", "err"));
    }
    let locked = Probe::python_with_native("with_pipes", "pipe_lock");
    let locked = locked.arg(true).arg("/tmp/probe").arg("out");
    assert_is_answered_in_time(target, &locked, Duration::from_millis(1_500));
    Ok(())
}

/// Bytes, and the text that represents them in an answer.
const TEXTS: &[(&[u8], &str)] = &[
    (b"plain", "plain"),
    (b"\0", "\0"),
    (b"\x1a", "\x1a"),
    (b"\r\n\x0b\x7f", "\r\n\x0b\x7f"),
    (b"\xef\xbb\xbf", "\u{feff}"),
    (b"\xf0\x9f\x98\x80", "\u{1f600}"),
    (b"\xff", "\u{fffd}"),
    (b"\xfe\xff", "\u{fffd}\u{fffd}"),
    (b"\x80", "\u{fffd}"),
    // A truncated character becomes one replacement character.
    (b"\xc3", "\u{fffd}"),
    (b"\xe2\x82", "\u{fffd}"),
    (b"\xf0\x9f\x98", "\u{fffd}"),
    // Of invalid bytes each becomes one.
    (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
    (b"\xc0\xaf", "\u{fffd}\u{fffd}"),
    (b"\xf4\x90\x80\x80", "\u{fffd}\u{fffd}\u{fffd}\u{fffd}"),
    (b"\"\\</script>\xe2\x80\xa8", "\"\\</script>\u{2028}"),
];

fn say(pieces: &[(&[u8], usize)]) -> Probe {
    pieces.iter().fold(Probe::python("say"), |probe, (bytes, times)| {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        probe.arg(json!([digits, times]))
    })
}

pub fn exact_and_text(target: &Target) -> Result<(), Unexercised> {
    let whole = target.run(&say(&[(b"x", OUTPUT_BYTES_MAX)])).finished();
    assert_eq!((whole.exit_code, whole.stdout.len()), (Some(0), OUTPUT_BYTES_MAX));
    assert_too_large(&target.run(&say(&[(b"x", OUTPUT_BYTES_MAX + 1)])));
    // The limit counts raw bytes, not their replacement, which is three times as long.
    let wide = target.run(&say(&[(b"\xff", OUTPUT_BYTES_MAX)])).finished();
    assert_eq!(wide.stdout.len(), "\u{fffd}".len() * OUTPUT_BYTES_MAX);
    let pieces: Vec<(&[u8], usize)> =
        TEXTS.iter().flat_map(|(bytes, _)| [(*bytes, 1), (&b"|"[..], 1)]).collect();
    let said = target.run(&say(&pieces)).stdout();
    let found: Vec<&str> = said.split('|').collect();
    let expected: Vec<&str> = TEXTS.iter().map(|(_, text)| *text).chain([""]).collect();
    assert_eq!(found, expected);
    Ok(())
}
