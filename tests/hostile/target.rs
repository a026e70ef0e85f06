//! The service under attack: one started here, or a running one.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fs, thread};

use cofferdam_test_server::client::{Answer, Client, post, request};
use cofferdam_test_server::host::ready_sandboxes;
use cofferdam_test_server::prestart::{metric, warm_sandboxes};
use cofferdam_test_server::recorded::TestAuthority;
use cofferdam_test_server::service::{Service, Setup, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::Unexercised;
use super::aftermath::HostState;
use super::engine::EngineClient;
use super::observe::observed;
use super::probe::Probe;
use super::weakened::Wall;

/// The concurrency of the service started here; rows need up to four runs.
pub const CONCURRENCY: usize = 8;
/// What workspaces may ask to reach.
const NETWORK_HOSTS: &str = "localhost:*,0.0.0.0:*,127.0.0.0/8:*,169.254.169.254:*";
/// The only address of the host that they may reach.
pub const EGRESS_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// How long after the request a run has certainly begun.
const BEGUN_AFTER: Duration = Duration::from_millis(400);

/// Long enough for all concurrent runs to overlap.
pub const NAP: &str = "import time\ndef probe(): time.sleep(1)\n";
/// How long filling the standby pool may take.
const FULL_WITHIN: Duration = Duration::from_secs(20);

/// The target of the attacks.
#[derive(Debug)]
pub struct Target {
    address: SocketAddr,
    slug: String,
    own: Option<Own>,
    /// What the service verifies hosts by, beside the roots of the system.
    certificates: TestAuthority,
    clean: Value,
}

/// A service started here, and its state on the host.
#[derive(Debug)]
pub struct Own {
    pub service: Service,
    pub sentinel: Sentinel,
    wall: Option<String>,
    certificates: PathBuf,
    before: HostState,
    directory: TempDir,
}

/// A secret on the host: a file that only root may read, and an environment variable of the server.
#[derive(Debug)]
pub struct Sentinel {
    pub directory: TempDir,
    token: String,
}

impl Target {
    /// The service at `HOSTILE_URL`, or one started here.
    pub fn from_env(wall: Option<&Wall>) -> Self {
        let slug = std::env::var("HOSTILE_SLUG").unwrap_or_else(|_| "python".to_owned());
        let url = std::env::var("HOSTILE_URL").ok().filter(|url| !url.is_empty());
        let certificates = TestAuthority::default();
        let wall = wall.map(|wall| wall.name.clone());
        let own = url.is_none().then(|| Own::start(wall, certificates.file()));
        let address = match (&url, &own) {
            (Some(url), _) => address_of(url),
            (None, Some(own)) => own.service.address,
            (None, None) => unreachable!("either a URL or a service started here"),
        };
        let mut target = Self { address, slug, own, certificates, clean: Value::Null };
        target.learn();
        target
    }

    /// Records what a run observes before any attack.
    fn learn(&mut self) {
        self.clean = self.observe(&Probe::python("clean"));
        self.fill_standby();
        self.use_engine();
        if let Some(own) = &mut self.own {
            own.before = HostState::settled(&own.service);
        }
    }

    /// Uses each part of the engine that keeps something open from its first use on.
    fn use_engine(&self) {
        let client = self.engine_client();
        if self.own.is_none() || client.check_offered().is_err() {
            return;
        }
        let workspace = client.create(&json!({}));
        workspace.sh("true");
        drop(client.made(&workspace.post("/fork", &json!({}))));
    }

    /// Fills the standby pool of our own service, so that rows find and leave the same number of
    /// sandboxes.
    fn fill_standby(&self) {
        let Some(own) = &self.own else { return };
        let count = standby_max();
        thread::scope(|scope| {
            for _ in 0..CONCURRENCY {
                scope.spawn(|| self.observe(&Probe::inline(NAP)));
            }
        });
        wait_until("a full standby pool", FULL_WITHIN, || {
            ready_sandboxes(own.service.pid()).len() == count
        });
        wait_until("runtimes started ahead", FULL_WITHIN, || own.has_all_warm());
    }

    /// The service started here, for rows that check the host.
    pub fn own(&self) -> Result<&Own, Unexercised> {
        self.own.as_ref().ok_or_else(|| Unexercised("needs a service started here".to_owned()))
    }

    /// A client of the target's workspaces.
    pub fn engine(&self) -> Result<EngineClient, Unexercised> {
        let client = self.engine_client();
        client.check_offered()?;
        Ok(client)
    }

    fn engine_client(&self) -> EngineClient {
        let secret = self.own.as_ref().map(|own| own.sentinel.token.clone());
        EngineClient::new(self.address, String::new(), secret)
    }

    /// What the hosts of rows prove themselves by.
    pub fn certificates(&self) -> &TestAuthority {
        &self.certificates
    }

    /// The port of the service.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Runs a probe and returns its answer, whatever the outcome.
    #[track_caller]
    pub fn run(&self, probe: &Probe) -> Answer {
        self.ask(self.request(probe))
    }

    /// The request that runs a probe.
    pub fn request(&self, probe: &Probe) -> Vec<u8> {
        post("", probe.body(&self.slug).to_string())
    }

    /// Runs a probe that succeeds and returns its observations.
    #[track_caller]
    pub fn observe(&self, probe: &Probe) -> Value {
        observed(&self.run(probe))
    }

    /// Starts a run and returns while it is live.
    pub fn begin(&self, probe: &Probe) -> Live {
        let (address, request) = (self.address, self.request(probe));
        let thread = thread::spawn(move || Client::connect(address).ask(request));
        thread::sleep(BEGUN_AFTER);
        Live(thread)
    }

    /// Sends `bytes` on a new connection and reads the one answer, which must not
    /// contain our secret.
    #[track_caller]
    pub fn ask(&self, bytes: impl AsRef<[u8]>) -> Answer {
        let answer = self.connect().ask(bytes);
        if let Some(own) = &self.own {
            own.sentinel.assert_not_in(&answer);
        }
        answer
    }

    /// The slug that probes are posted under.
    pub fn slug(&self) -> &str {
        &self.slug
    }

    /// Asserts that the service answers, that a run observes what the first one
    /// did, and that the host holds no more than before.
    #[track_caller]
    pub fn assert_as_before(&self) {
        let health = self.ask(request("GET", "/health", ""));
        assert_eq!((health.status, health.body.as_str()), (200, "ok\n"), "/health");
        let found = self.observe(&Probe::python("clean"));
        assert_eq!(found, self.clean, "the next run observes a difference");
        if let Some(own) = &self.own {
            own.sentinel.assert_intact();
            // Programs of workspaces take places in the pool, which runs ask for again.
            if ready_sandboxes(own.service.pid()).len() < standby_max() || !own.has_all_warm() {
                self.fill_standby();
            }
            own.before.assert_holds_for(&own.service);
        }
    }

    /// Replaces a service that an attack has changed.
    pub fn start_over(&mut self) {
        let Some(own) = self.own.take() else { return };
        let wall = own.wall.clone();
        own.end();
        let own = Own::start(wall, self.certificates.file());
        self.address = own.service.address;
        self.own = Some(own);
        self.learn();
    }
}

/// A live run.
#[derive(Debug)]
pub struct Live(JoinHandle<Answer>);

impl Live {
    /// Whether the run is still live.
    pub fn is_going(&self) -> bool {
        !self.0.is_finished()
    }

    /// Waits for the answer.
    pub fn answer(self) -> Answer {
        self.0.join().unwrap()
    }
}

impl Own {
    fn start(wall: Option<String>, certificates: PathBuf) -> Self {
        let sentinel = Sentinel::new();
        let directory = tempfile::tempdir().unwrap();
        let host_root = host_root_in(&directory);
        fs::create_dir(&host_root).unwrap();
        let setup =
            setup(&sentinel, wall.as_deref(), &certificates).env("ENGINE_HOST_ROOTS", &host_root);
        let service = setup.env("ENGINE_STORE_DIR", directory.path().join("engine")).start();
        let before = HostState::settled(&service);
        Self { service, sentinel, wall, certificates, before, directory }
    }

    /// Whether as many runtimes wait as may; none where nothing is started ahead.
    fn has_all_warm(&self) -> bool {
        let offered = metric(&self.service, "bytes_max") > 0.0;
        !offered || warm_sandboxes(self.service.pid()).len() == standby_max()
    }

    /// A new directory of the host that inputs may be in.
    pub fn new_host_directory(&self) -> PathBuf {
        let within = tempfile::Builder::new().tempdir_in(host_root_in(&self.directory));
        within.unwrap().keep()
    }

    /// The setup of another service like this one.
    pub fn another(&self) -> Setup {
        setup(&self.sentinel, self.wall.as_deref(), &self.certificates)
    }

    /// The wall that this service was started without.
    pub fn wall(&self) -> Option<&str> {
        self.wall.as_deref()
    }

    /// A service of `setup` that lacks the same wall.
    pub fn like(&self, setup: Setup) -> Setup {
        lacking(setup, self.wall())
    }

    /// Kills the service and all processes that it leaves.
    fn end(mut self) {
        self.service.kill();
        self.before.kill_what_is_new();
    }
}

/// By its real path, which inputs need.
fn host_root_in(directory: &TempDir) -> PathBuf {
    directory.path().canonicalize().unwrap().join("inputs")
}

fn setup(sentinel: &Sentinel, wall: Option<&str>, certificates: &Path) -> Setup {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Descriptors inherited from a careless parent: a root-only file and a directory outside.
    let redirections = format!(
        "7<{} 8<{} 9<>/dev/null",
        sentinel.path().display(),
        sentinel.directory.path().display()
    );
    let setup = Setup::inside(root)
        .arg("--langs")
        .arg(root.join("langs"))
        .env("RUN_CONCURRENCY", CONCURRENCY.to_string())
        .env("SERVICE_SECRET", &sentinel.token)
        .env("ENGINE_NETWORK_HOSTS", NETWORK_HOSTS)
        .env("ENGINE_HOSTS_ALLOW", EGRESS_ADDRESS.to_string())
        .env("EGRESS_CA_FILE", certificates)
        .with_open(&redirections);
    lacking(setup, wall)
}

fn lacking(setup: Setup, wall: Option<&str>) -> Setup {
    match wall {
        Some(wall) => setup.env("COFFERDAM_WITHOUT", wall),
        None => setup,
    }
}

impl Sentinel {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut random = [0; 16];
        std::io::Read::read_exact(&mut fs::File::open("/dev/urandom").unwrap(), &mut random)
            .unwrap();
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let sentinel = Self { directory, token: format!("sentinel-{token}") };
        let mut file = fs::File::create(sentinel.path()).unwrap();
        file.write_all(sentinel.token.as_bytes()).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        sentinel
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("sentinel")
    }

    /// Asserts that the file, its mode and its directory are unchanged.
    #[track_caller]
    pub fn assert_intact(&self) {
        use std::os::unix::fs::MetadataExt;
        assert_eq!(fs::read_to_string(self.path()).unwrap(), self.token);
        let metadata = fs::symlink_metadata(self.path()).unwrap();
        let owned = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777, metadata.nlink());
        assert_eq!(owned, (0, 0, 0o600, 1), "the sentinel's owner, mode and links");
        assert_eq!(fs::read_dir(self.directory.path()).unwrap().count(), 1);
    }

    #[track_caller]
    fn assert_not_in(&self, answer: &Answer) {
        let Answer { head, body, .. } = answer;
        assert!(
            !head.contains(&self.token) && !body.contains(&self.token),
            "the answer contains the secret"
        );
    }
}

/// The most sandboxes that our own service prepares.
pub fn standby_max() -> usize {
    let asked_for = std::env::var("STANDBY_MAX").map(|count| count.parse().unwrap());
    asked_for.map_or(CONCURRENCY, |count: usize| count.min(CONCURRENCY))
}

/// The address of `http://host:port`.
fn address_of(url: &str) -> SocketAddr {
    let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("not an http URL: {url}"));
    let authority = rest.split('/').next().unwrap_or(rest);
    let with_port =
        if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
    let mut addresses =
        with_port.to_socket_addrs().unwrap_or_else(|error| panic!("{url}: {error}"));
    addresses.next().unwrap_or_else(|| panic!("{url} has no address"))
}
