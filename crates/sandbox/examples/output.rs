//! Runs one command within limits and prints what it wrote.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example")]

use std::time::Duration;

use cofferdam_sandbox::{Sandbox, enter_user_namespace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Does nothing for root.
    enter_user_namespace();
    let sandbox = Sandbox::new()?;
    for reason in sandbox.not_enforced() {
        eprintln!("not enforced: {reason}");
    }
    let output = sandbox
        .command("sh")
        .args(["-c", "id -u; cat; echo $GREETING > /workspace/file; ls -l"])
        .env("GREETING", "hello")
        .stdin("from standard input\n")
        .memory(64 << 20)
        .timeout(Duration::from_secs(5))
        .output()?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    println!("{:?} in {} ms", output.outcome, output.report.usage.wall_ms);
    Ok(())
}
