//! Talks with a shell at a terminal in a workspace, as a library.
//!
//! `cargo run --example terminal`, as root or as a user who may create user namespaces.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use cofferdam::engine::{
    ProgramSession, ProgramStateProvider, RunProgramSpec, SandboxEngine, SandboxSession,
    WorkspaceManager, WorkspacePolicy, enter_user_namespace,
};

/// How long the shell may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    // First, while there is one thread: without privileges sandboxes need it.
    enter_user_namespace();
    run(&mut io::stdout())
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let engine = SandboxEngine::builder(place.path().join("engine")).build()?;
    let workspace = engine.create_workspace("", WorkspacePolicy::default())?;

    // PS1 is the prompt, which tells when the shell waits for the next line.
    let spec = RunProgramSpec::new("sh").env("PS1", "ready> ").on_terminal();
    let shell = engine.start_session(&workspace, spec)?;
    wait_for(&shell, "ready> ")?;
    shell.write(b"stty size; test -t 0 && echo at a terminal", true)?;
    wait_for(&shell, "at a terminal\nready> ")?;
    shell.session().resize(132, 43)?;
    shell.write(b"stty size; exit 3", true)?;
    if !shell.wait_end(ANSWER_WAIT) {
        return Err("the shell goes on".into());
    }
    // A line of the terminal is what was typed, or what was printed.
    let log = shell.log(None, None);
    for line in log.output.lines().filter(|line| !line.starts_with("ready> ")) {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "exit code {:?}", shell.state().exit_code)?;
    // This kills what runs. Here the shell has ended.
    shell.close()?;
    Ok(())
}

/// Waits until the last of the output is `end`.
fn wait_for(shell: &SandboxSession, end: &str) -> Result<(), Box<dyn Error>> {
    loop {
        let is_over = shell.state().exit_code.is_some();
        let seen = shell.log(None, None).output;
        if seen.ends_with(end) {
            return Ok(());
        }
        // It waits for more than the last poll has shown, so each poll comes before a look at the log.
        if is_over || !shell.wait_output(ANSWER_WAIT) {
            return Err(format!("no {end:?} in {seen:?}").into());
        }
        shell.poll(None);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_talks_with_a_shell_at_a_terminal() {
        let mut out = Vec::new();
        super::run(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "24 80\nat a terminal\n43 132\nexit code Some(3)\n");
    }
}
