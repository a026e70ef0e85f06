//! Reads a command's output as it comes.

#![expect(clippy::print_stdout, reason = "an example")]

use std::io::{BufRead, BufReader};

use cofferdam_sandbox::{Sandbox, enter_user_namespace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    enter_user_namespace();
    let mut child = Sandbox::new()?
        .command("sh")
        .args(["-c", "for i in 1 2 3; do echo line $i; sleep 0.2; done"])
        .spawn_piped()?;
    let stdout = child.stdout.take().ok_or("the output is piped")?;
    for line in BufReader::new(stdout).lines() {
        println!("{}", line?);
    }
    println!("{:?}", child.wait()?.outcome);
    Ok(())
}
