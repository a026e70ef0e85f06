//! A proxy with rules, programs that trust it, and hosts behind TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use serde_json::Value;

use crate::egress::proxy::tests::scene::{ProxyScene, ProxySetup, host, read_message};
use crate::egress::roots::UpstreamRoots;
use crate::egress::rules::{LiveNetwork, NetworkRules, WithheldValues};
use crate::egress::secret::{Placeholders, ServiceSecrets};
use cofferdam_core::NetworkObject;

/// The value of the secret in these tests.
pub const SECRET: &str = "sk-Value/+of=the&secret";

/// A connection of a host that speaks TLS.
pub type HostStream = StreamOwned<ServerConnection, TcpStream>;
/// A connection of a program within its tunnel.
pub type ProgramStream = StreamOwned<ClientConnection, TcpStream>;

/// The authority of all hosts of the tests, in files.
pub struct HostAuthority {
    pub directory: tempfile::TempDir,
    params: CertificateParams,
    key: KeyPair,
}

impl HostAuthority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = params.self_signed(&key).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let encoded = {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.encode(root.der())
        };
        let pem = format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n");
        std::fs::write(directory.path().join("root.pem"), pem).unwrap();
        Self { directory, params, key }
    }

    /// What a proxy verifies these hosts by.
    pub fn roots(&self) -> UpstreamRoots {
        let roots = UpstreamRoots::default();
        roots.add_file(&self.directory.path().join("root.pem")).unwrap();
        roots
    }

    /// How a host with `names` speaks TLS.
    pub fn config(&self, names: &[&str], protocols: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        config.alpn_protocols =
            protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// A host for `a.test`, `b.test` and 127.0.0.1 that runs `serve` on each connection. Returns its port.
    pub fn host(&self, serve: impl Fn(HostStream) + Send + Sync + 'static) -> u16 {
        let config = self.config(&["a.test", "b.test", "x.b.test", "127.0.0.1"], &["http/1.1"]);
        host(move |socket: TcpStream| {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            serve(StreamOwned::new(connection, socket));
        })
    }

    /// A host that answers each request on a connection with `answer`. Returns its port and the requests.
    pub fn answering(&self, answer: impl Into<Vec<u8>>) -> (u16, Receiver<String>) {
        let (sender, requests) = channel();
        let answer = answer.into();
        let port = self.host(move |mut stream| {
            loop {
                let request = read_message(&mut stream);
                if request.is_empty() || sender.send(request).is_err() {
                    break;
                }
                if stream.write_all(&answer).and_then(|()| stream.flush()).is_err() {
                    break;
                }
            }
        });
        (port, requests)
    }
}

/// A network of `rules`, and of more keys of the object.
pub fn network(object: Value) -> (NetworkRules, Placeholders) {
    let object: NetworkObject = serde_json::from_value(object).unwrap();
    let placeholders = Placeholders::new_for(&object);
    let secrets = ServiceSecrets::default();
    let rules =
        NetworkRules::resolve(&object, &secrets, "", &placeholders, WithheldValues::Refused);
    (rules.unwrap(), placeholders)
}

/// A proxy with rules.
pub struct RuledScene {
    pub scene: ProxyScene,
    /// What stands for the secret `key`.
    pub placeholder: String,
}

impl RuledScene {
    pub fn new(authority: &HostAuthority, object: Value) -> Self {
        Self::with(authority, object, |_| {})
    }

    pub fn with(
        authority: &HostAuthority,
        object: Value,
        change: impl FnOnce(&mut ProxySetup),
    ) -> Self {
        let (rules, placeholders) = network(object);
        let mut setup = ProxySetup::allowing(&[]);
        setup.policy.network = Arc::new(LiveNetwork::new(Arc::new(rules)));
        change(&mut setup);
        let scene = setup.serve_verifying(authority.roots());
        scene.names.set("b.test", &[&["127.0.0.1"]]);
        scene.names.set("x.b.test", &[&["127.0.0.1"]]);
        Self { scene, placeholder: placeholders.of("key").unwrap_or_default() }
    }

    /// The certificate that programs trust, in a file.
    pub fn root_file(&self) -> std::path::PathBuf {
        let files = self.scene.trust.shown_files(&std::env::temp_dir(), &|_| None).unwrap();
        let root = files.into_iter().find(|file| file.target.ends_with("ca-root.pem"));
        root.unwrap().source
    }

    /// How programs speak TLS.
    pub fn client_config(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.root_file()).unwrap()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols =
            protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// Opens a tunnel to `name` and speaks TLS for `sni` in it.
    pub fn open_as(&self, name: &str, port: u16, sni: &str) -> ProgramStream {
        let mut client = self.scene.connect();
        client.tunnel(name, port);
        let server = ServerName::try_from(sni.to_owned()).unwrap();
        let connection = ClientConnection::new(self.client_config(&["http/1.1"]), server).unwrap();
        StreamOwned::new(connection, client.0)
    }

    pub fn open(&self, port: u16) -> ProgramStream {
        self.open_as("a.test", port, "a.test")
    }

    /// Sends `request` to `a.test` on a connection of its own and returns all that comes back.
    pub fn ask(&self, port: u16, request: impl AsRef<[u8]>) -> String {
        let mut stream = self.open(port);
        let _ = stream.write_all(request.as_ref());
        let _ = stream.flush();
        rest(&mut stream)
    }

    /// Sends a GET for `path` with `headers`, each with its line end, and reads to the end.
    pub fn get(&self, port: u16, path: &str, headers: &str) -> String {
        self.ask(
            port,
            format!(
                "GET {path} HTTP/1.1\r\nhost: a.test:{port}\r\nconnection: close\r\n{headers}\r\n"
            ),
        )
    }

    /// Closes the proxy and returns what its records say of decisions, reasons and rules.
    pub fn verdicts(&mut self) -> Vec<String> {
        let records = self.scene.records();
        let words = |record: &cofferdam_core::egress::EgressRecord| {
            let reason = record.reason.map_or("-", |reason| reason.word());
            let rule = record.rule.map_or("-".to_owned(), |rule| rule.to_string());
            format!("{} {reason} {rule}", record.decision.word())
        };
        records.iter().map(words).collect()
    }
}

/// Reads to the end, however the connection ends.
pub fn rest(stream: &mut impl Read) -> String {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The network of most tests: everything may be asked of `a.test`, with the secret in a header.
pub fn with_secret(port: u16) -> Value {
    serde_json::json!({
        "rules": {format!("a.test:{port}"): [
            {"path": "/added", "headers": {"authorization": "Bearer {{secret.key}}"}},
            {"path": "/query", "query": {"key": "{{secret.key}}"}},
            {},
        ]},
        "secrets": {"key": {
            "value": SECRET,
            "hosts": [format!("a.test:{port}")],
            "in": ["authorization", "x-api-key", "query:token"],
        }},
        "secret_env": {"KEY": "key"},
    })
}
