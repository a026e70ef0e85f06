//! Attacks through the compiler, which is the tenant's program here.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Answer, post};
use serde_json::json;

use crate::Unexercised;
use crate::rows::at_once;
use crate::target::Target;

/// Concurrent compilations: each may take all the memory of a run.
const AT_ONCE: usize = 4;
/// Covers the longest limit below on a loaded machine.
const BOUNDED: Duration = Duration::from_secs(45);
/// Text of a file that a compiler may read and would quote in its error.
const READABLE: &str = "root:x:0:0";

/// The required end of a compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The program runs and prints the checker's text.
    Runs,
    /// The compiler fails by itself with this message.
    Refused(&'static str),
    /// A limit ends it, unless the compiler fails first.
    Bounded,
}

/// A solution with this many generations of types, each twice as large as the one before.
const TEMPLATES: &str = "
template <int N, int M> struct T { static const int v = T<N - 1, 2 * M>::v + T<N - 1, 2 * M + 1>::v; };
template <int M> struct T<0, M> { static const int v = M; };
int solution() { return T<40, 0>::v; }";

/// 10^9 numbers.
const MACROS: &str = "
#define A x,x,x,x,x,x,x,x,x,x
#define B A,A,A,A,A,A,A,A,A,A
#define C B,B,B,B,B,B,B,B,B,B
#define D C,C,C,C,C,C,C,C,C,C
#define E D,D,D,D,D,D,D,D,D,D
#define F E,E,E,E,E,E,E,E,E,E
#define G F,F,F,F,F,F,F,F,F,F
#define H G,G,G,G,G,G,G,G,G,G
#define I H,H,H,H,H,H,H,H,H,H
int x, y[] = {I};
int solution() { return y[0]; }";

/// Solutions that end soon, and their required ends. The first two read a file
/// that is readable, to show what the others would reveal.
const READERS: [(&str, End); 6] = [
    (
        "#include \"/dev/stdin\"\nasm(\".incbin \\\"/etc/passwd\\\"\");\nint solution() { return 0; }",
        End::Runs,
    ),
    ("#include \"/etc/passwd\"", End::Refused(READABLE)),
    ("#include \"/etc/shadow\"", End::Refused("/etc/shadow: Permission denied")),
    ("#include \"/proc/1/environ\"", End::Refused("/proc/1/environ: Permission denied")),
    ("#include \"solution.cpp\"", End::Refused("nested depth")),
    (
        "asm(\".incbin \\\"/etc/shadow\\\"\");\nint solution() { return 0; }",
        End::Refused("file not found: /etc/shadow"),
    ),
];

/// Solutions whose compilation only a limit or a failure ends.
const BOMBS: [&str; 5] = [
    "#include \"/dev/urandom\"",
    "int x[1 << 30] = {1};\nint solution() { return x[1]; }",
    "asm(\".rept 1 << 30\\n.quad 1\\n.endr\");\nint solution() { return 0; }",
    TEMPLATES,
    MACROS,
];

fn compile(target: &Target, solution: &str, timeout: &str) -> Answer {
    let checker = "#include \"solution.cpp\"\n#include <cstdio>\n\
                   int main() { std::puts(\"checked\"); return solution(); }\n";
    let body = json!({
        "lang_slug": "cpp",
        "solution_text": solution,
        "checker_text": checker,
        "timeout": timeout,
    });
    let began = Instant::now();
    let answer = target.ask(post("", body.to_string()));
    let took = began.elapsed();
    assert!(took < BOUNDED, "{solution}: answered after {took:?}");
    answer
}

fn attack(target: &Target, solution: &str, end: End) {
    let limit = if end == End::Bounded { "4s" } else { "30s" };
    let answer = compile(target, solution, limit);
    // A compiler quotes the text of a file in its errors.
    let may_show = end == End::Refused(READABLE);
    assert!(may_show || !answer.body.contains(READABLE), "{solution}: {answer:?}");
    if answer.status == 413 {
        assert_eq!(end, End::Bounded, "{solution}: {answer:?}");
        return;
    }
    let finished = answer.finished();
    match end {
        End::Runs => {
            let ended = (finished.exit_code, finished.stdout.as_str());
            assert_eq!(ended, (Some(0), "checked\n"), "{solution}: {answer:?}");
        }
        End::Refused(words) => {
            assert_eq!(answer.header("x-run-outcome"), Some("exited"), "{solution}: {answer:?}");
            assert_ne!(finished.exit_code, Some(0), "{solution}: {answer:?}");
            assert!(finished.stderr.contains(words), "{solution}: {answer:?}");
        }
        End::Bounded => assert_ne!(finished.exit_code, Some(0), "{solution}: {answer:?}"),
    }
}

pub fn attacks(target: &Target) -> Result<(), Unexercised> {
    if compile(target, "", "0s").status == 503 {
        return Err(Unexercised("the slug cpp is not served".to_owned()));
    }
    let mut attacks: Vec<(String, End)> =
        READERS.iter().map(|(solution, end)| ((*solution).to_owned(), *end)).collect();
    attacks.extend(BOMBS.map(|solution| (solution.to_owned(), End::Bounded)));
    if let Ok(own) = target.own() {
        let path = own.sentinel.path().display().to_string();
        let include = format!("#include \"{path}\"");
        attacks.push((include, End::Refused("sentinel: No such file or directory")));
    }
    // The longest ones start first.
    let queue = Mutex::new(attacks);
    let work = || {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some((solution, end)) = next else { return };
            attack(target, &solution, end);
        }
    };
    at_once(AT_ONCE, |_| work());
    Ok(())
}
