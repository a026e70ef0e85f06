//! Runs the commands of a Cell in a way of one's own: in sandboxes, but with a record of each command.
//!
//! An executor that keeps its Cell in directories of this host needs [`Executor`] alone; see `OwnCell::Directories`.
//!
//! `cargo run --example own_executor`, as root or as a user who may create user namespaces.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam::cases::{
    AgentDifference, AgentSeat, CancelToken, CellDescription, CellEntry, Deadline, DifferenceRules,
    ExecError, ExecRequest, ExecResult, Executor, OwnCell, OwnParts, PatchError, SandboxedCell,
    TrialBench, TrialCell,
};
use cofferdam::jobs::enter_user_namespace;

const CASE: &str = "\
id: count
task: {prompt: Write a file.}
setup: {run: [echo 1 > number]}
harnesses: {mine: {kind: command, argv: [sh, -c, echo 2 > number]}}
matrix: {harnesses: [mine], models: [m]}
graders:
- {type: command, cmd: grep -q 2 number}
";

type Commands = Arc<Mutex<Vec<String>>>;

/// A Cell whose commands are recorded.
#[derive(Debug)]
struct Recorded<C>(C, Commands);

#[rustfmt::skip]
impl<C: Executor> Executor for Recorded<C> {
    fn run(&self, request: &ExecRequest) -> Result<ExecResult, ExecError> {
        let ended = self.0.run(request)?;
        let line = format!("{} -> {:?}", request.argv.join(" "), ended.exit_code);
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        Ok(ended)
    }
    fn start(&self) -> Result<(), ExecError> { self.0.start() }
    fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), ExecError> {
        self.0.put(path, content, mode)
    }
    fn get(&self, path: &str) -> Result<Vec<u8>, ExecError> { self.0.get(path) }
    fn remove(&self, path: &str) -> Result<(), ExecError> { self.0.remove(path) }
    fn list(&self, path: &str) -> Result<Vec<CellEntry>, ExecError> { self.0.list(path) }
    fn stop(&self) { self.0.stop(); }
    fn describe(&self) -> Result<CellDescription, ExecError> { self.0.describe() }
}

#[rustfmt::skip]
impl TrialCell for Recorded<SandboxedCell> {
    fn as_executor(&self) -> &dyn Executor { self }
    fn agent(&self) -> AgentSeat<'_> { AgentSeat { cell: self, has_env: true } }
    fn keep(&self, directory: &Path) -> Result<(), ExecError> { self.0.keep(directory) }
    fn checkpoint(&self) -> Result<(), ExecError> { self.0.checkpoint() }
    fn difference(
        &self, rules: &DifferenceRules, deadline: Deadline,
    ) -> Result<AgentDifference, PatchError> {
        self.0.difference(rules, deadline)
    }
    fn grader_cell(&self) -> Result<Box<dyn Executor + '_>, ExecError> {
        Ok(Box::new(Recorded(self.0.grader_cell()?, Arc::clone(&self.1))))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // First, while there is one thread: without privileges sandboxes need it.
    enter_user_namespace();
    run(&mut io::stdout())
}

/// Runs a trial and writes its score and its commands to `out`.
fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    fs::write(place.path().join("case.yaml"), CASE)?;

    let commands = Commands::default();
    let seen = Arc::clone(&commands);
    let own = OwnParts {
        executor: Some(Box::new(move |request| {
            let cell = Recorded(request.sandboxed(), Arc::clone(&commands));
            Ok(OwnCell::Whole(Box::new(cell)))
        })),
        ..OwnParts::default()
    };
    let bench = TrialBench::builder(place.path(), place.path().join("store")).own(own).build()?;
    let result = bench.run("mine", "m", &CancelToken::new()?)?;

    writeln!(out, "{}: score {:?}", result.end.status.word(), result.end.overall_score)?;
    for line in seen.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_command_of_a_trial_goes_through_the_executor() {
        let mut out = Vec::new();
        super::run(&mut out).unwrap();
        let wanted = "\
done: score Some(1.0)
echo 1 > number -> Some(0)
sh -c echo 2 > number -> Some(0)
grep -q 2 number -> Some(0)
";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
