//! The kernels with their real interpreters, without a sandbox.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::*;
use cofferdam_core::Stream;

const WITHIN: Duration = Duration::from_secs(30);

struct LiveKernel {
    child: Child,
    requests: ChildStdin,
    output: Receiver<(Stream, Vec<u8>)>,
    asked: u32,
}

struct Said {
    printed: String,
    answer: KernelAnswer,
}

impl LiveKernel {
    fn start(language: KernelLanguage, outputs: &Path) -> Self {
        let [program, option, source] = language.argv();
        let mut command = Command::new(program);
        command.args([option, source]).env("OUTPUT_DIR", outputs);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, output) = channel();
        let streams: [(Stream, Box<dyn Read + Send>); 2] = [
            (Stream::Stdout, Box::new(child.stdout.take().unwrap())),
            (Stream::Stderr, Box::new(child.stderr.take().unwrap())),
        ];
        for (stream, mut pipe) in streams {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut chunk = [0; 4096];
                while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                    let _ = sender.send((stream, chunk[..count].to_vec()));
                }
            });
        }
        let mut requests = child.stdin.take().unwrap();
        requests.write_all(first_line(None).as_bytes()).unwrap();
        let mut kernel = Self { child, requests, output, asked: 0 };
        kernel.answer("").unwrap();
        kernel
    }

    fn ask(&mut self, code: &str) -> String {
        self.asked += 1;
        let (id, file) = (format!("{:032x}", self.asked), format!("<block {}>", self.asked));
        self.requests.write_all(request_line(&id, code, &file).as_bytes()).unwrap();
        id
    }

    /// What was printed, and the answer; nothing if the kernel ended.
    fn answer(&mut self, id: &str) -> Option<Said> {
        let mut scanner = AnswerScanner::new(id);
        let mut printed = Vec::new();
        loop {
            if let Some(answer) = scanner.complete() {
                let answer = serde_json::from_slice(answer).unwrap();
                return Some(Said { printed: String::from_utf8(printed).unwrap(), answer });
            }
            match self.output.recv_timeout(WITHIN) {
                Ok((stream, bytes)) => printed.extend(scanner.push(stream, &bytes)),
                Err(error) => {
                    assert_eq!(error, std::sync::mpsc::RecvTimeoutError::Disconnected);
                    return None;
                }
            }
        }
    }

    fn run(&mut self, code: &str) -> Said {
        let id = self.ask(code);
        self.answer(&id).unwrap()
    }

    fn value(&mut self, code: &str) -> String {
        let said = self.run(code);
        assert_eq!(said.answer.error, None, "{code}");
        said.answer.results[0].text.clone().unwrap()
    }

    fn fault(&mut self, code: &str) -> CodeFault {
        self.run(code).answer.error.unwrap()
    }

    /// Runs code that prints `begun` and then lasts, and interrupts it.
    fn interrupt(&mut self, code: &str) -> CodeFault {
        let id = self.ask(code);
        let (stream, bytes) = self.output.recv_timeout(WITHIN).unwrap();
        assert!(stream == Stream::Stdout && bytes.starts_with(b"begun"), "{bytes:?}");
        // The first line of output comes before the loop, if only by a moment: repeated until heard.
        let pid = Pid::from_raw(self.child.id().try_into().unwrap());
        let (done, ended) = channel::<()>();
        let signals = thread::spawn(move || {
            while ended.recv_timeout(Duration::from_millis(50)).is_err() {
                kill(pid, Signal::SIGINT).unwrap();
            }
        });
        let said = self.answer(&id).unwrap();
        done.send(()).unwrap();
        signals.join().unwrap();
        said.answer.error.unwrap()
    }
}

impl Drop for LiveKernel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python() -> (LiveKernel, tempfile::TempDir) {
    let outputs = tempfile::tempdir().unwrap();
    (LiveKernel::start(KernelLanguage::Python, outputs.path()), outputs)
}

fn node() -> (LiveKernel, tempfile::TempDir) {
    let outputs = tempfile::tempdir().unwrap();
    (LiveKernel::start(KernelLanguage::JavaScript, outputs.path()), outputs)
}

#[test]
fn python_keeps_variables_imports_and_the_directory() {
    let (mut python, outputs) = python();
    python.run("import os, math\nx = 20\nos.chdir(os.environ['OUTPUT_DIR'])");
    assert_eq!(python.value("x + math.floor(1.5)"), "21");
    let directory = outputs.path().canonicalize().unwrap();
    assert_eq!(
        python.value("os.path.realpath(os.getcwd())"),
        format!("{directory:?}").replace('"', "'")
    );
    assert_eq!(python.value("__name__"), "'__main__'");
}

#[test]
fn node_keeps_declarations_and_the_directory() {
    let (mut node, outputs) = node();
    node.run("const x = 20; let y = 1; function f() { return x + y }; process.chdir(process.env.OUTPUT_DIR)");
    assert_eq!(node.value("y += 1; f()"), "22");
    let directory = outputs.path().canonicalize().unwrap();
    assert_eq!(node.value("process.cwd()"), format!("{directory:?}").replace('"', "'"));
    assert_eq!(node.value("const z = await Promise.resolve(x); z"), "20");
    assert_eq!(node.value("z + 1"), "21");
    assert_eq!(node.value("{a: x}"), "{ a: 20 }");
}

#[test]
fn output_comes_before_the_answer_and_from_child_processes_too() {
    let (mut python, _outputs) = python();
    let said = python.run("print('one'); import os; os.system('echo two'); 3");
    assert_eq!(
        said.printed.lines().collect::<std::collections::BTreeSet<_>>(),
        ["one", "two"].into()
    );
    assert_eq!(python.run("None").answer, KernelAnswer { results: Vec::new(), error: None });
    let (mut node, _outputs) = node();
    let said = node.run(
        "console.log('one'); require('child_process').execSync('echo two', {stdio: 'inherit'})",
    );
    assert_eq!(said.printed, "one\ntwo\n");
}

#[test]
fn an_error_shows_the_frames_of_the_code_only() {
    let (mut python, _outputs) = python();
    let fault = python.fault("def f():\n    raise ValueError('no')\nf()");
    assert_eq!((&*fault.name, &*fault.value), ("ValueError", "no"));
    assert!(fault.traceback.contains("line 3, in <module>") && fault.traceback.contains("in f"));
    assert_eq!(fault.traceback.matches("File ").count(), 2, "{}", fault.traceback);
    let fault = python.fault("a b");
    assert_eq!(fault.name, "SyntaxError");
    assert_eq!(fault.traceback.matches("File ").count(), 1, "{}", fault.traceback);
    let (mut node, _outputs) = node();
    let fault = node.fault("function f() { throw new TypeError('no') }\nf()");
    assert_eq!((&*fault.name, &*fault.value), ("TypeError", "no"));
    assert_eq!(fault.traceback.matches("    at ").count(), 2, "{}", fault.traceback);
    assert_eq!(node.fault("throw null").value, "null");
}

#[test]
fn an_interrupt_ends_the_code_and_keeps_the_state() {
    let (mut python, _outputs) = python();
    python.run("x = 1");
    let fault = python.interrupt("print('begun', flush=True)\nwhile True: pass");
    assert_eq!(fault.name, "KeyboardInterrupt");
    assert_eq!(python.value("x"), "1");
    let (mut node, _outputs) = node();
    node.run("const x = 1");
    for endless in ["while (true);", "await new Promise(() => {})"] {
        let fault = node.interrupt(&format!("console.log('begun'); {endless}"));
        assert_eq!(fault.name, "Interrupted", "{endless}");
        assert_eq!(node.value("x"), "1");
    }
}

#[test]
fn pictures_are_files_and_other_forms_are_texts() {
    let (mut python, outputs) = python();
    let class = "class A:\n  def __repr__(self): return 'A'\n  def _repr_html_(self): return '<b>'\n  \
                 def _repr_json_(self): return {'a': 1}\n  def _repr_png_(self): return b'png'\nA()";
    let results = python.run(class).answer.results;
    let form = |index: usize| (results[index].mime_type.as_str(), results[index].text.as_deref());
    assert_eq!(form(0), ("text/plain", Some("A")));
    assert_eq!(form(1), ("text/html", Some("<b>")));
    assert_eq!(form(2), ("application/json", Some(r#"{"a": 1}"#)));
    assert_eq!(form(3), ("image/png", None));
    let file = outputs.path().join("results").join(results[3].file.as_ref().unwrap());
    assert_eq!(std::fs::read(file).unwrap(), b"png");
    let (mut node, outputs) = node();
    let results = node.run("({_repr_svg_() { return '<svg/>' }})").answer.results;
    let file = outputs.path().join("results").join(results[1].file.as_ref().unwrap());
    assert_eq!(std::fs::read(file).unwrap(), b"<svg/>");
}

#[test]
fn code_has_an_empty_standard_input_and_an_exit_ends_the_kernel() {
    let (mut python, _outputs) = python();
    assert_eq!(python.fault("input()").name, "EOFError");
    let id = python.ask("import sys; print('last'); sys.exit(3)");
    assert!(python.answer(&id).is_none());
    assert_eq!(python.child.wait().unwrap().code(), Some(3));
    let (mut node, _outputs) = node();
    let id = node.ask("process.exit(4)");
    assert!(node.answer(&id).is_none());
    assert_eq!(node.child.wait().unwrap().code(), Some(4));
}
