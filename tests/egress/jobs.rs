//! Jobs with `policy.network`.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use cofferdam_test_server::exchange::{Reply, try_ask};
use cofferdam_test_server::host::{Footprint, threads_and_descriptors};
use cofferdam_test_server::service::{Service, Setup, cofferdam, wait_until};
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::origin::Origin;
use crate::support::is_privileged;

/// The longest time that a job of these tests may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The user without privileges.
const UNPRIVILEGED_UID: u32 = 65_534;

/// A service for jobs that may reach the origin.
pub struct JobScene {
    service: Service,
    pub origin: Origin,
    directory: TempDir,
}

/// Starts one with these further variables; none where sandboxes are impossible, which
/// `REQUIRE_PRIVILEGED=1` forbids.
pub fn scene(variables: &[(&str, &str)]) -> Option<JobScene> {
    if !is_privileged() {
        return None;
    }
    let (origin, directory) = (Origin::start(), TempDir::new().unwrap());
    fs::create_dir(directory.path().join("work")).unwrap();
    fs::write(directory.path().join("work/authority.crt"), origin.certificate()).unwrap();
    let setup = Setup::shell()
        .env("ENGINE", "off")
        .env("JOBS_STORE_DIR", directory.path().join("jobs"))
        .env("EGRESS_CA_FILE", origin.certificate_file())
        .env("EGRESS_LOG_PATHS", "on")
        .env("JOBS_NETWORK_HOSTS", "localhost:*,127.0.0.1:*,169.254.169.254:*,unresolved.invalid")
        .env("JOBS_HOSTS_ALLOW", "localhost,127.0.0.1");
    let set = |setup: Setup, (name, value): &(&str, &str)| setup.env(name, value);
    let service = variables.iter().fold(setup, set).start();
    Some(JobScene { service, origin, directory })
}

impl JobScene {
    fn workspace(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// A request that runs a shell script with that network.
    pub fn request(&self, script: &str, network: &Value) -> Value {
        json!({
            "workspace": {"source": "local_path", "path": self.workspace()},
            "command": {"argv": ["sh", "-c", script], "env": {"PATH": "/usr/bin:/bin"}},
            "policy": {
                "allowed_commands": ["sh"], "allow_shell": true, "allowed_env": ["PATH"],
                "network": network,
            },
        })
    }

    pub fn post(&self, request: &Value) -> Reply {
        let body = request.to_string();
        try_ask(self.service.address, "POST", "/v1/jobs", "", body.as_bytes()).unwrap()
    }

    /// What the service has registered on the host.
    pub fn footprint(&self) -> Footprint {
        Footprint::of(self.service.pid())
    }

    /// Kills the service.
    pub fn kill(&mut self) {
        self.service.kill();
    }

    /// Runs the job to its result.
    #[track_caller]
    pub fn result(&self, request: &Value) -> Value {
        let posted = self.post(request);
        assert_eq!(posted.status, 202, "{}", posted.json());
        let target = format!("/v1/jobs/{}", posted.json()["job_id"].as_str().unwrap());
        let began = Instant::now();
        loop {
            let answer = try_ask(self.service.address, "GET", &target, "", b"").unwrap().json();
            if !["queued", "running"].contains(&answer["status"].as_str().unwrap()) {
                return answer;
            }
            assert!(began.elapsed() < PATIENCE, "{answer}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Runs a script that may reach the origin.
    #[track_caller]
    fn run(&self, script: &str) -> Value {
        self.result(&self.request(script, &json!({"allow": self.origin.entries()})))
    }
}

/// The decisions, reasons and ports of the records.
fn records(result: &Value) -> Vec<(String, Value, u64)> {
    let record = |record: &Value| {
        let decision = record["decision"].as_str().unwrap().to_owned();
        (decision, record["reason"].clone(), record["port"].as_u64().unwrap())
    };
    result["egress"].as_array().unwrap().iter().map(record).collect()
}

#[test]
fn a_job_reaches_the_hosts_of_its_list_with_programs_that_know_nothing_of_it() {
    let Some(scene) = scene(&[]) else { return };
    let Origin { plain, tls, .. } = scene.origin;
    let script = format!(
        "curl -sS -m 20 http://localhost:{plain}/curl; echo
         curl -sS -m 20 --cacert authority.crt https://localhost:{tls}/curl; echo
         python3 -c '
import ssl, urllib.request
print(urllib.request.urlopen(\"http://localhost:{plain}/py\", timeout=20).read().decode())
context = ssl.create_default_context(cafile=\"authority.crt\")
print(urllib.request.urlopen(\"https://localhost:{tls}/py\", timeout=20, context=context).read().decode())
'"
    );
    let result = scene.run(&script);
    let expected = "hello /curl\nhello /curl\nhello /py\nhello /py\n";
    assert_eq!(result["stdout"]["text"], expected, "{result}");
    let allow = json!({"allow": scene.origin.entries()});
    assert_eq!(result["policy"]["network"], allow);
    assert_eq!(result["policy"]["network_enforced"], true);
    let (plain, tls) = (u64::from(plain), u64::from(tls));
    let allowed = |port| ("allowed".to_owned(), Value::Null, port);
    assert_eq!(records(&result), [plain, tls, plain, tls].map(allowed), "{result}");
    for record in result["egress"].as_array().unwrap() {
        assert_eq!(
            (&record["host"], &record["address"]),
            (&"localhost".into(), &"127.0.0.1".into())
        );
        assert!(record["bytes_received"].as_u64().unwrap() > 10, "{record}");
        assert!(record["bytes_sent"].as_u64().unwrap() > 10, "{record}");
    }
}

#[test]
fn a_host_that_is_not_listed_is_a_403_of_the_proxy_and_a_record() {
    let Some(scene) = scene(&[]) else { return };
    let Origin { plain, tls, .. } = scene.origin;
    let script = format!(
        "curl -s -m 20 -o body -w '%{{http_code}}\\n' http://localhost:{plain}/x; cat body; echo
         curl -s -m 20 -o /dev/null -w '%{{http_connect}}\\n' https://localhost:{tls}/x
         curl -s -m 20 -o /dev/null -w '%{{http_connect}}\\n' https://unresolved.invalid/x"
    );
    let network = json!({"allow": ["localhost:1", "unresolved.invalid"]});
    let result = scene.result(&scene.request(&script, &network));
    let text = result["stdout"]["text"].as_str().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2], lines[3]), ("403", "403", "502"), "{result}");
    assert!(lines[1].contains("not_listed"), "{text}");
    let (plain, tls) = (u64::from(plain), u64::from(tls));
    let denied = |port| ("denied".to_owned(), json!("not_listed"), port);
    let failed = ("failed".to_owned(), json!("unresolved"), 443);
    assert_eq!(records(&result), [denied(plain), denied(tls), failed], "{result}");
}

#[test]
fn nothing_leaves_but_through_the_proxy() {
    let Some(scene) = scene(&[]) else { return };
    let tcp = TcpListener::bind("0.0.0.0:0").unwrap();
    let udp = UdpSocket::bind("0.0.0.0:0").unwrap();
    for socket in [tcp.set_nonblocking(true), udp.set_nonblocking(true)] {
        socket.unwrap();
    }
    let name = format!("cofferdam-egress-{}", std::process::id());
    let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
    let unix = UnixListener::bind_addr(&abstract_name).unwrap();
    unix.set_nonblocking(true).unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    let script = format!(
        "python3 - <<'END'
import socket
def tried(name, act):
    try:
        act()
        print(name, 'reached')
    except OSError:
        print(name, 'refused')
def connect(family, address):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.settimeout(5)
    s.connect(address)
def send(address):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(address)
    s.send(b'x')
    s.settimeout(1)
    s.recv(1)
tried('tcp', lambda: connect(socket.AF_INET, ('127.0.0.1', {tcp_port})))
tried('far', lambda: connect(socket.AF_INET, ('192.0.2.1', 80)))
tried('six', lambda: connect(socket.AF_INET6, ('2001:db8::1', 80)))
tried('udp', lambda: send(('127.0.0.1', {udp_port})))
tried('dns', lambda: send(('192.0.2.53', 53)))
tried('name', lambda: socket.getaddrinfo('example.com', 80))
tried('unix', lambda: connect(socket.AF_UNIX, b'\\0{name}'))
END"
    );
    let result = scene.run(&script);
    let expected = "tcp refused\nfar refused\nsix refused\nudp refused\ndns refused\nname refused\nunix refused\n";
    assert_eq!(result["stdout"]["text"], expected, "{result}");
    assert!(tcp.accept().is_err() && unix.accept().is_err(), "something came");
    assert!(udp.recv(&mut [0; 1]).is_err(), "something came");
    assert_eq!(result["egress"], json!([]));
}

#[test]
fn no_program_takes_the_port_of_the_proxy_or_gets_its_socket() {
    let Some(scene) = scene(&[]) else { return };
    let plain = scene.origin.plain;
    let script = format!(
        "python3 - <<'END'
import socket
for options in [(), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)]:
    for address in ['127.0.0.1', '0.0.0.0', '::ffff:127.0.0.1', '::']:
        s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET)
        for option in options:
            s.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            s.bind((address, 3128))
            s.listen()
            print(options, address, 'taken')
        except OSError:
            pass
        s.close()
END
        curl -sS -m 20 http://localhost:{plain}/after"
    );
    let result = scene.run(&script);
    assert_eq!(result["stdout"]["text"], "hello /after", "{result}");
}

#[test]
fn a_network_is_denied_beyond_the_list_of_the_service_and_a_wrong_entry_is_named() {
    let Some(scene) = scene(&[]) else { return };
    for allow in [json!(["localhost"]), json!([]), json!(["127.0.0.1:1-2"])] {
        let request = scene.request("true", &json!({"allow": allow}));
        let posted = scene.post(&request);
        if allow == json!(["127.0.0.1:1-2"]) {
            let error = posted.assert_error(422, "validation.invalid_request");
            assert_eq!(error["details"]["path"], "policy.network.allow[0]", "{error}");
        } else {
            assert_eq!(posted.status, 202, "{}", posted.json());
        }
    }
    for allow in ["example.com", "*.localhost:80", "10.0.0.1:80", "127.0.0.0/8:80"] {
        let result = scene.result(&scene.request("true", &json!({"allow": [allow]})));
        assert_eq!(result["status"], "policy_denied", "{result}");
        assert_eq!(result["error"]["code"], "policy.network_denied", "{result}");
        assert_eq!(result["egress"], json!([]));
    }
    let denied = scene.result(&scene.request("true", &json!({"secret_env": {"KEY": "nobody"}})));
    assert_eq!(
        (&denied["status"], &denied["error"]["code"]),
        (&json!("policy_denied"), &json!("policy.secret_denied"))
    );
    assert_eq!(denied["error"]["details"]["name"], "nobody", "{denied}");
    let policy = &denied["policy"];
    assert_eq!(
        (&policy["decision"], &policy["reasons"][0]),
        (&json!("denied"), &json!("policy.secret_denied")),
        "{denied}"
    );
}

#[test]
fn private_addresses_and_our_own_listeners_are_not_reached() {
    // The list allows the name `localhost`, which resolves to an address that is not public.
    let Some(scene) = scene(&[("JOBS_HOSTS_ALLOW", "127.0.0.1")]) else { return };
    let own = scene.service.address.port();
    let script = format!(
        "for url in http://169.254.169.254/latest http://127.0.0.1:{own}/health; do
             curl -s -m 20 -w ' %{{http_code}}\\n' $url | tr -d '\\n'; echo
         done"
    );
    let network = json!({"allow": ["169.254.169.254:80", format!("127.0.0.1:{own}")]});
    let result = scene.result(&scene.request(&script, &network));
    let text = result["stdout"]["text"].as_str().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("private_address") && lines[0].ends_with(" 403"), "{result}");
    assert!(lines[1].contains("own_address") && lines[1].ends_with(" 403"), "{result}");
}

#[test]
fn the_variables_of_a_request_win_and_a_job_without_a_network_has_none() {
    let Some(scene) = scene(&[]) else { return };
    let mut request = scene.request("env", &json!({"allow": []}));
    request["command"]["env"]["HTTP_PROXY"] = "mine".into();
    request["policy"]["allowed_env"] = json!(["PATH", "HTTP_PROXY"]);
    let result = scene.result(&request);
    let text = result["stdout"]["text"].as_str().unwrap();
    for line in ["HTTP_PROXY=mine", "https_proxy=http://127.0.0.1:3128", "NODE_USE_ENV_PROXY=1"] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    let result = scene.result(&scene.request(
        "env; python3 -c '
import socket
try:
    socket.create_connection((\"127.0.0.1\", 3128), 5)
except ConnectionRefusedError:
    print(\"refused\")'",
        &json!("none"),
    ));
    let text = result["stdout"]["text"].as_str().unwrap();
    assert!(text.ends_with("refused\n") && !text.to_ascii_lowercase().contains("proxy"), "{text}");
    assert_eq!((&result["egress"], &result["policy"]["network"]), (&json!([]), &json!("none")));
}

#[test]
fn nothing_of_a_network_is_left_after_its_job_not_even_a_child_with_a_tunnel() {
    let Some(scene) = scene(&[]) else { return };
    let Origin { plain, tls, .. } = scene.origin;
    let pid = scene.service.pid();
    let once = format!("curl -sS -m 20 http://localhost:{plain}/1");
    // What stays from the first use on is there.
    scene.run(&once);
    let settled = || threads_and_descriptors(pid);
    wait_until("a quiet service", PATIENCE, || {
        let before = settled();
        std::thread::sleep(Duration::from_millis(200));
        before == settled()
    });
    let before = settled();
    let script = format!(
        "python3 - <<'END'
import os, socket, ssl, time
proxy = socket.create_connection(('127.0.0.1', 3128), 20)
proxy.sendall(b'CONNECT localhost:{tls} HTTP/1.1\\r\\nHost: localhost:{tls}\\r\\n\\r\\n')
print(proxy.recv(4096).split(b'\\r\\n')[0].decode())
context = ssl.create_default_context(cafile='authority.crt')
tunnel = context.wrap_socket(proxy, server_hostname='localhost')
tunnel.sendall(b'GET /kept HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')
came = b''
while not came.endswith(b'hello /kept'):
    came += tunnel.recv(4096)
print(came[-11:].decode(), flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            time.sleep(0.01)
            tunnel.sendall(b'GET /more HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')
            tunnel.recv(4096)
    os._exit(0)
END"
    );
    let result = scene.run(&script);
    let text = result["stdout"]["text"].as_str().unwrap();
    assert!(text.ends_with("hello /kept\n"), "{result}");
    wait_until("as many threads and descriptors as before", PATIENCE, || {
        let (threads, descriptors) = settled();
        threads <= before.0 && descriptors <= before.1
    });
}

#[test]
fn without_privileges_a_job_reaches_its_hosts_too() {
    let origin = Origin::start();
    let directory = TempDir::new().unwrap();
    let place = |name: &str| directory.path().join(name);
    for name in ["work", "store"] {
        fs::create_dir(place(name)).unwrap();
    }
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if geteuid().is_root() {
        chown(place("store"), Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID)).unwrap();
    }
    fs::copy(cofferdam(), place("cofferdam")).unwrap();
    let nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        if geteuid().is_root() {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        command.args(words).current_dir("/");
        command
    };
    if !nobody(&["unshare", "--user", "--map-root-user", "true"]).status().unwrap().success() {
        eprintln!("SKIP: no user namespaces without privileges");
        return;
    }
    let url = format!("http://localhost:{}/rootless", origin.plain);
    let request = json!({
        "workspace": {"source": "local_path", "path": place("work")},
        "command": {"argv": ["curl", "-sS", "-m", "20", url]},
        "policy": {"allowed_commands": ["curl"], "network": {"allow": [origin.entries()[0]]}},
    });
    fs::write(place("request.json"), request.to_string()).unwrap();
    let [binary, file, store] =
        ["cofferdam", "request.json", "store"].map(|name| place(name).display().to_string());
    let ended = nobody(&[&binary, "job", "run", &file, "--store-dir", &store])
        .env("EGRESS_CA_FILE", origin.certificate_file())
        .env("EGRESS_LOG_PATHS", "on")
        .env("JOBS_NETWORK_HOSTS", "localhost:*")
        .env("JOBS_HOSTS_ALLOW", "localhost")
        .output()
        .unwrap();
    let result: Value =
        serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    assert_eq!(result["stdout"]["text"], "hello /rootless", "{result}");
    assert_eq!(records(&result)[0].0, "allowed");
}

#[test]
fn a_job_has_the_files_that_name_the_proxy_for_maven_and_gradle() {
    let Some(scene) = scene(&[]) else { return };
    let network = json!({"allow": scene.origin.entries()});
    let script =
        "cd /tmp/home && cat .m2/settings.xml .gradle/gradle.properties && stat -c %u:%a .m2";
    let result = scene.result(&scene.request(script, &network));
    let shown = result["stdout"]["text"].as_str().unwrap();
    assert!(shown.contains("<port>3128</port>"), "{result}");
    assert!(shown.contains("systemProp.http.proxyHost=127.0.0.1\n"), "{result}");
    assert!(shown.ends_with(":755\n"), "{result}");
}
