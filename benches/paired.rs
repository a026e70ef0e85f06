//! One run of ours against the floor and a peer, in alternation on this machine.
//!
//! Absolute times drift on shared machines, so every figure is a ratio of two
//! commands run in turn, the median over all pairs. `PAIRS=200` asks for more.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PAIRS_DEFAULT: usize = 60;
const WARM_UP_PAIRS: usize = 5;

type Work<'a> = Box<dyn FnMut() -> io::Result<()> + 'a>;

fn main() -> io::Result<()> {
    let asked = std::env::var("PAIRS").ok().and_then(|text| text.parse().ok());
    let mut table = Table { pairs: asked.unwrap_or(PAIRS_DEFAULT), text: String::new() };
    let binary = std::env::var_os("COFFERDAM_BIN")
        .map_or_else(|| env!("CARGO_BIN_EXE_cofferdam").into(), PathBuf::from);
    let ours = || succeed(Command::new(&binary).args(["exec", "--", "/bin/true"]));
    table.row(
        "exec -- /bin/true ÷ bare spawn",
        Box::new(ours),
        Box::new(|| succeed(&mut Command::new("/bin/true"))),
    )?;
    if Command::new("bwrap").arg("--version").stdout(Stdio::null()).status().is_ok() {
        let peer = "exec -- /bin/true ÷ bubblewrap, same namespaces";
        table.row(peer, Box::new(ours), Box::new(|| succeed(&mut bubblewrap("/bin/true"))))?;
    } else {
        table.text.push_str("bubblewrap is not installed: not compared\n");
    }
    for (what, recipe) in [("`:`", ":"), ("python pass", "python3 -c pass")] {
        let workspace = workspace(recipe)?;
        let service = Service::start(&binary, workspace.path())?;
        let mut client = service.connect()?;
        table.row(
            &format!("POST /run of {what}, 10 files ÷ bare make test"),
            Box::new(move || client.run()),
            Box::new(|| succeed(make_test().current_dir(workspace.path()))),
        )?;
    }
    table.print()
}

/// The figures so far, as text.
struct Table {
    pairs: usize,
    text: String,
}

impl Table {
    /// Times both in turn; adds the medians and the median of the pairs' ratios.
    fn row(&mut self, name: &str, mut ours: Work<'_>, mut other: Work<'_>) -> io::Result<()> {
        let mut times = Vec::with_capacity(self.pairs);
        for pair in 0..self.pairs + WARM_UP_PAIRS {
            let both = (millis(&mut ours)?, millis(&mut other)?);
            if pair >= WARM_UP_PAIRS {
                times.push(both);
            }
        }
        let ours = median(times.iter().map(|(ours, _)| *ours));
        let other = median(times.iter().map(|(_, other)| *other));
        let ratio = median(times.iter().map(|(ours, other)| ours / other));
        writeln!(self.text, "{name:<52} {ours:>8.2} {other:>8.2} {ratio:>7.2}")
            .map_err(io::Error::other)
    }

    fn print(&self) -> io::Result<()> {
        let what = format!("median of {} pairs", self.pairs);
        let heading = format!("{what:<52} {:>8} {:>8} {:>7}\n", "ours ms", "other ms", "ratio");
        io::stdout().write_all((heading + &self.text).as_bytes())
    }
}

fn millis(work: &mut Work<'_>) -> io::Result<f64> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64() * 1_000.0)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn succeed(command: &mut Command) -> io::Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{command:?}: {status}"))) }
}

/// The peer with the namespaces of a box and a root like its own.
fn bubblewrap(program: &str) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]);
    command.args(["--unshare-cgroup", "--ro-bind", "/", "/", "--proc", "/proc"]);
    command.args(["--dev", "/dev", "--tmpfs", "/tmp", program]);
    command
}

/// Bare, and with the programs a box would find.
fn make_test() -> Command {
    let mut command = Command::new("make");
    command
        .args(["-s", "test"])
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// Ten files, one of them the recipe.
fn workspace(recipe: &str) -> io::Result<tempfile::TempDir> {
    let workspace = tempfile::tempdir()?;
    fs::write(workspace.path().join("Makefile"), format!("test:\n\t@{recipe}\n"))?;
    for file in 1..10 {
        fs::write(workspace.path().join(format!("file{file}")), [b'x'; 4096])?;
    }
    Ok(workspace)
}

/// A server of ours on a port of its own.
struct Service {
    server: Child,
    address: String,
}

impl Service {
    fn start(binary: &Path, workspace: &Path) -> io::Result<Self> {
        let mut server = Command::new(binary)
            .args(["serve", "--addr", "127.0.0.1:0", "--workspace"])
            .arg(workspace)
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = server.stderr.take().ok_or_else(|| io::Error::other("no stderr"))?;
        let mut lines = BufReader::new(stderr).lines();
        let address = loop {
            let line = lines.next().ok_or_else(|| io::Error::other("the server ended"))??;
            if let Some(at) = line.find("127.0.0.1:") {
                let address = line[at..].split(|c: char| !c.is_ascii_digit() && !".:".contains(c));
                break address.take(1).collect::<String>();
            }
        };
        // Keep reading, so that the server never waits for us.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { server, address })
    }

    fn connect(&self) -> io::Result<Client> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Client { stream })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.server.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.server.wait();
    }
}

/// One kept-alive connection.
struct Client {
    stream: TcpStream,
}

impl Client {
    fn run(&mut self) -> io::Result<()> {
        let body = r#"{"lang_slug":"python","solution_text":""}"#;
        let head =
            format!("POST /run HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        self.stream.write_all((head + body).as_bytes())?;
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        // The last bytes are known: those of a run that ended well and printed nothing.
        while !answer.ends_with(br#"{"exit_code":0,"stdout":"","stderr":""}"#) {
            match self.stream.read(&mut chunk)? {
                0 => return Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned())),
                count => answer.extend_from_slice(&chunk[..count]),
            }
        }
        Ok(())
    }
}
