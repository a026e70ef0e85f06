//! Starts two commands at once, kills one, and shows how each ended.

#![expect(clippy::print_stdout, reason = "an example")]

use std::thread;
use std::time::Duration;

use cofferdam_sandbox::{Sandbox, enter_user_namespace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    enter_user_namespace();
    let sandbox = Sandbox::new()?;
    let endless = sandbox.command("sleep").arg("1000").spawn()?;
    let limited = sandbox
        .command("sh")
        .args(["-c", "while :; do :; done"])
        .timeout(Duration::from_millis(300))
        .spawn()?;
    thread::sleep(Duration::from_millis(100));
    endless.kill();
    println!("killed: {:?}", endless.wait()?.outcome);
    println!("limited: {:?}", limited.wait()?.outcome);
    Ok(())
}
