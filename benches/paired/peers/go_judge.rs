//! go-judge: a server that runs programs in containers which it keeps.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Client, post};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Limits, Prepared, Sandbox, WIDE, built};

const STARTED_WITHIN: Duration = Duration::from_secs(10);
const ENDED_WITHIN: Duration = Duration::from_secs(5);
/// Of a program that is timed or observed. Go sends answers above 2 KiB in chunks, which the client does not read.
const OUTPUT_BYTES_MAX: usize = 128;

struct GoJudge {
    server: Server,
    client: Client,
    limits: Limits,
}

/// Starts it with its defaults, at a free port. A request without limits would be held to none, so it always has some.
pub fn start(limits: Option<Limits>) -> Prepared {
    let (server, client) = Server::start()?;
    Ok(Box::new(GoJudge { server, client, limits: limits.unwrap_or(WIDE) }))
}

impl Sandbox for GoJudge {
    fn run(&mut self, program: &[&str]) -> Result<(), String> {
        let body = request(program, self.limits).to_string();
        let answer = self.client.try_ask(post("content-type: application/json\r\n", body));
        let answer = answer.ok_or_else(|| format!("go-judge: {}", self.server.state()))?;
        accepted(answer.status, &answer.body)
    }
}

fn request(program: &[&str], limits: Limits) -> Value {
    let Limits { memory_mib, processes, cpu_seconds, wall_seconds } = limits;
    let nanoseconds = |seconds: u32| u64::from(seconds) * 1_000_000_000;
    json!({ "cmd": [{
        "args": program,
        "env": ["PATH=/usr/bin:/bin"],
        "files": [
            { "content": "" },
            { "name": "stdout", "max": OUTPUT_BYTES_MAX },
            { "name": "stderr", "max": OUTPUT_BYTES_MAX },
        ],
        "cpuLimit": nanoseconds(cpu_seconds),
        "clockLimit": nanoseconds(wall_seconds),
        "memoryLimit": u64::from(memory_mib) << 20,
        "procLimit": processes,
    }] })
}

fn accepted(status: u16, body: &str) -> Result<(), String> {
    let results: Value = serde_json::from_str(body).unwrap_or_default();
    match results[0]["status"].as_str() {
        Some("Accepted") if status == 200 => Ok(()),
        _ => Err(format!("go-judge: {status}: {:.200}", body.replace('\n', " "))),
    }
}

/// The process, which ends with this value.
struct Server {
    process: Child,
    /// Where it finds no configuration.
    _directory: TempDir,
}

impl Server {
    fn start() -> Result<(Self, Client), String> {
        let binary = built("go-judge")?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr());
        let address: SocketAddr = free.map_err(|error| error.to_string())?;
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut command = Command::new(binary);
        command.args(["-silent", "-http-addr"]).arg(address.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.current_dir(directory.path()).spawn();
        let process = process.map_err(|error| format!("go-judge: {error}"))?;
        let mut server = Self { process, _directory: directory };
        let began = Instant::now();
        while began.elapsed() < STARTED_WITHIN && server.is_alive() {
            if let Some(client) = Client::try_connect(address) {
                return Ok((server, client));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(format!("go-judge does not listen: {}", server.state()))
    }

    fn is_alive(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    fn state(&mut self) -> String {
        match self.process.try_wait() {
            Ok(Some(status)) => format!("it ended with {status}"),
            _ => "it runs and does not answer".to_owned(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // On SIGTERM it removes its containers and their groups.
        let pid = i32::try_from(self.process.id()).map(Pid::from_raw);
        let _ = pid.map(|pid| kill(pid, Signal::SIGTERM));
        let asked = Instant::now();
        while asked.elapsed() < ENDED_WITHIN && self.is_alive() {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
