//! A service whose stderr is a pipe that is not read.

use std::io::{self, BufRead, BufReader, PipeReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Client, post, request, solution};
use cofferdam_test_server::exposition::Exposition;
use cofferdam_test_server::service::cofferdam;
use cofferdam_test_server::workspace::Workspace;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The smallest size of a pipe, so that few lines fill it.
const PIPE_BYTES: i32 = 4096;
/// How long the shutdown may take on a loaded machine: the drain, and a second for the last lines.
const ENDED_WITHIN: Duration = Duration::from_secs(20);

/// How long the log may take to be read, and the line of a request to come if nothing else comes.
const READ_WITHIN: Duration = Duration::from_secs(60);
const MARK_WITHIN: Duration = Duration::from_millis(300);

/// A server that is killed on drop.
struct Serving {
    child: Child,
    address: SocketAddr,
    log: Option<BufReader<PipeReader>>,
    _workspace: Workspace,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    /// Starts a server and reads its log up to the line with its address.
    fn start(format: &str) -> Self {
        let workspace = Workspace::shell();
        let (reader, writer) = io::pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES)).unwrap();
        let child = Command::new(cofferdam())
            .args(["serve", "--addr", "127.0.0.1:0", "--workspace"])
            .arg(workspace.path())
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs([("DEBUG", "1"), ("LOG_FORMAT", format), ("JOBS", "off")])
            .stdin(Stdio::null())
            .stderr(writer)
            .spawn()
            .unwrap();
        let mut log = BufReader::with_capacity(1, reader);
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended before it listened");
            if let Some((_, behind)) = line.split_once("listening on ") {
                break behind.split(';').next().unwrap().parse().unwrap();
            }
        };
        Self { child, address, log: Some(log), _workspace: workspace }
    }

    /// Makes the server log more than the pipe and its queue hold, and checks that it still serves
    /// requests.
    fn fill_log(&self) {
        let mut client = Client::connect(self.address);
        let long = format!("x-long: {}\r\n", "y".repeat(8000));
        for _ in 0..300 {
            assert_eq!(client.ask(request("GET", "/status", &long)).status, 200);
        }
        for _ in 0..20 {
            let answer = client.ask(post("", solution("echo right").to_string()));
            assert_eq!(answer.stdout(), "right\n");
        }
        let metrics = Exposition::parse(&client.ask(request("GET", "/metrics", "")).body);
        assert!(metrics.get("cofferdam_log_lines_dropped_total", &[]) > 0.0);
    }

    fn end(&mut self) -> ExitStatus {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(began.elapsed() < ENDED_WITHIN, "the server does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A log that is read.
struct Reading {
    lines: Receiver<String>,
    text: String,
}

impl Reading {
    fn begin(log: BufReader<PipeReader>) -> Self {
        let (tell, lines) = channel();
        thread::spawn(move || {
            let log = BufReader::new(log);
            log.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        Self { lines, text: String::new() }
    }

    /// Sends requests until one of them is read in the log: nothing before it waits any more.
    fn catch_up(&mut self, address: SocketAddr) {
        let began = Instant::now();
        let mut client = Client::connect(address);
        for number in 0.. {
            assert!(began.elapsed() < READ_WITHIN, "the log is not read to its end");
            let mark = format!("mark-{number}.");
            client.ask(request("GET", "/status", &format!("x-mark: {mark}\r\n")));
            // As long as the log is full, the line of the request is dropped.
            while let Ok(line) = self.lines.recv_timeout(MARK_WITHIN) {
                let is_marked = line.contains(&mark);
                self.add(&line);
                if is_marked {
                    return;
                }
            }
        }
    }

    fn read_rest(mut self) -> String {
        while let Ok(line) = self.lines.recv_timeout(READ_WITHIN) {
            self.add(&line);
        }
        self.text
    }

    fn add(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }
}

#[test]
fn an_unread_log_blocks_neither_requests_nor_runs_nor_signals() {
    for format in ["text", "json"] {
        let mut service = Serving::start(format);
        service.fill_log();
        assert_eq!(service.end().code(), Some(0), "{format}");
    }
}

#[test]
fn a_log_that_is_read_again_counts_its_dropped_lines() {
    for (format, dropped) in [("text", " dropped"), ("json", "\"message\":\"log lines dropped")] {
        let mut service = Serving::start(format);
        service.fill_log();
        let mut reading = Reading::begin(service.log.take().unwrap());
        // The end of the process waits a second for its reader, which may have much to read yet.
        reading.catch_up(service.address);
        assert_eq!(service.end().code(), Some(0), "{format}");
        let text = reading.read_rest();
        let line = text.lines().find(|line| line.contains(dropped));
        let line = line.unwrap_or_else(|| panic!("{format}: {} bytes of log", text.len()));
        assert!(line.contains("count"), "{line}");
        assert!(text.lines().filter(|line| line.contains("request_id")).count() > 50);
        // The last line is present because there was room again.
        assert!(text.lines().last().unwrap().contains("draining"), "{format}");
        if format == "json" {
            for line in text.lines() {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
        }
    }
}
