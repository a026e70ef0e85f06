mod forms;

use std::io::Write;
use std::process::{Command, Stdio};

use self::forms::{DOCUMENTED, Form, NAMED, PLAIN};
use super::function::{STUB_BYTES_MAX, StubError, stub_function};

const ORACLE: &str = include_str!("oracle.py");

fn forms() -> impl Iterator<Item = Form> {
    PLAIN.into_iter().chain(NAMED).chain(DOCUMENTED)
}

#[test]
fn a_body_becomes_a_raise_and_every_other_byte_stays() {
    for (source, function, wanted, _) in forms() {
        let stubbed = stub_function(source, function);
        assert_eq!(stubbed.as_deref(), Ok(wanted), "{source:?}");
    }
}

#[test]
fn cpython_sees_the_same_bodies_and_every_call_raises() {
    let checked: Vec<[&str; 4]> = forms()
        .map(|(source, function, stubbed, call)| [source, stubbed, function, call])
        .collect();
    let input = serde_json::to_vec(&checked).unwrap();
    let mut python = Command::new("python3")
        .args(["-I", "-c", ORACLE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs python3");
    python.stdin.take().unwrap().write_all(&input).unwrap();
    let output = python.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn a_name_alone_is_that_of_the_only_method_with_it() {
    let source = "class C:\n  def m(self): return 1\nclass D:\n  def m(self): return 1\n  def n(self): return 2\n";
    let stubbed = stub_function(source, "n").unwrap();
    assert_eq!(stubbed, source.replace("return 2", "raise NotImplementedError"));
    let error = stub_function(source, "m").unwrap_err();
    assert_eq!(
        error.to_string(),
        "several functions are named 'm': name the class or function of one too"
    );
}

#[test]
fn what_cannot_be_emptied_is_an_error_that_says_why() {
    let missing = |function: &str| StubError::NoFunction { function: function.to_owned() };
    for (source, function, error) in [
        ("def f(): pass\n", "g", missing("g")),
        ("def f(): pass\n", "", missing("")),
        ("def f(): pass\n", "C.f", missing("C.f")),
        ("class C:\n  def f(): pass\n", "C", missing("C")),
        ("class C:\n  class D:\n    def f(): pass\n", "D.f", missing("D.f")),
        ("f = lambda: 1\n", "f", missing("f")),
        ("", "f", missing("f")),
        ("x = 1\ndef f(:\n  return 1\n", "f", StubError::Syntax { line: 2 }),
        ("def f():\n  # nothing\n", "f", StubError::Syntax { line: 1 }),
    ] {
        assert_eq!(stub_function(source, function), Err(error), "{source:?}");
    }
    let error = stub_function("def f(): pass\n", "g").unwrap_err();
    assert_eq!(error.to_string(), "there is no function 'g'");
    let long = " ".repeat(STUB_BYTES_MAX + 1);
    assert_eq!(stub_function(&long, "f"), Err(StubError::TooLarge));
}

/// A parser that recursed would overflow its stack.
#[test]
fn a_deep_file_ends_in_an_error_or_a_stub() {
    let deep = 20_000;
    for source in [
        format!("def f(): return {}1{}\n", "(".repeat(deep), ")".repeat(deep)),
        format!("def f(): return {}1\n", "not ".repeat(deep)),
        format!("def f(): return {}1\n", "-".repeat(deep)),
        format!("def f(): return {}1\n", "lambda: ".repeat(deep)),
        format!("def f(): return {}\n", "[".repeat(deep)),
        (0..500).map(|depth| format!("{}if x:\n", " ".repeat(depth))).collect(),
    ] {
        match stub_function(&source, "f") {
            Ok(stubbed) => assert_eq!(stubbed, "def f(): raise NotImplementedError\n"),
            Err(StubError::NoFunction { .. }) => assert!(!source.starts_with("def")),
            Err(_) => {}
        }
    }
}
