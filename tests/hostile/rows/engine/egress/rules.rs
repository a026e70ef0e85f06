//! Rules over requests, and secrets that are added on the way out.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use super::scene::{HostServer, printed, run};
use crate::Unexercised;
use crate::engine::{EngineClient, Workspace};
use crate::target::{EGRESS_ADDRESS, Target};

const SECRET: &str = "sk-never-in-a-sandbox";

/// A server that answers each request with what it heard of it.
struct EchoServer {
    authority: String,
    heard: Arc<Mutex<String>>,
}

impl EchoServer {
    fn start() -> Self {
        let listener = TcpListener::bind((EGRESS_ADDRESS, 0)).unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let heard = Arc::<Mutex<String>>::default();
        let told = Arc::clone(&heard);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let told = Arc::clone(&told);
                thread::spawn(move || echo(socket, &told));
            }
        });
        Self { authority, heard }
    }

    fn heard(&self) -> String {
        self.heard.lock().unwrap().clone()
    }
}

/// Sends each head back in pieces, so that no part of it arrives whole.
fn echo(mut socket: TcpStream, heard: &Mutex<String>) {
    let (mut head, mut byte) = (String::new(), [0]);
    while !head.ends_with("\r\n\r\n") && socket.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(char::from(byte[0]));
    }
    heard.lock().unwrap().push_str(&head);
    let seen = head.replace('\r', "").replace('\n', " ");
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nX-Seen: {seen}\r\nTransfer-Encoding: chunked\r\n\r\n");
    for piece in head.as_bytes().chunks(3) {
        answer.push_str(&format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)));
    }
    answer.push_str("0\r\n\r\n");
    // The program may be gone.
    let _ = socket.write_all(answer.as_bytes());
}

/// A workspace with that network.
#[track_caller]
fn ruled<'client>(client: &'client EngineClient, network: &Value) -> Workspace<'client> {
    client.create(&json!({"network": network}))
}

/// Rules that add the secret to requests to `server`, and allow those to `other` without it.
fn with_secret(server: &str, other: &str) -> Value {
    json!({
        "rules": {
            server: [{"plain": true, "headers": {"authorization": "Bearer {{secret.key}}"}}],
            other: [{"plain": true}],
        },
        "secrets": {"key": {"value": SECRET, "hosts": [server]}},
        "secret_env": {"API_KEY": "key"},
    })
}

/// Asks for a URL with these headers and prints the status and all that came back.
const ASK_WHOLE: &str = "
import os
def whole(url, head=''):
    proxy = connect()
    host = url.split('/')[2]
    proxy.sendall(f'GET {url} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n{head}\\r\\n'.encode())
    text = b''
    while piece := proxy.recv(65536):
        text += piece
    return text.decode('latin1')
";

pub fn a_secret_that_a_host_sends_back(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let (server, other) = (EchoServer::start(), HostServer::start());
    let at = server.authority.clone();
    let workspace = ruled(&client, &with_secret(&at, &other.authority()));
    let result = run(&workspace, &format!("{ASK_WHOLE}\nprint(repr(whole('http://{at}/')))\n"));
    let shown = result["stdout"].as_str().unwrap();
    assert!(server.heard().contains(SECRET), "the host did not get the secret: {result}");
    assert!(!result.to_string().contains(SECRET), "{result}");
    // In the header and in the body, of which no piece holds more than three bytes of it.
    assert_eq!(shown.matches("[redacted]").count(), 2, "{result}");
    Ok(())
}

pub fn a_placeholder_for_another_host(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let (server, other) = (HostServer::start(), EchoServer::start());
    let to = other.authority.clone();
    let workspace = ruled(&client, &with_secret(&server.authority(), &to));
    let program = format!(
        "{ASK_WHOLE}
key = os.environ['API_KEY']
for path, head in [
    ('', f'Authorization: Bearer {{key}}\\r\\n'),
    ('', f'X-Api-Key: {{key}}\\r\\n'),
    ('', f'Cookie: a={{key}}\\r\\n'),
    ('', f'Referer: http://a/?{{key}}\\r\\n'),
    (f'?a={{key}}', ''),
    (key, ''),
]:
    print(whole(f'http://{to}/{{path}}', head).split()[1])
print(whole('http://{to}/').split()[1])
"
    );
    let result = run(&workspace, &program);
    let lines = printed(&result);
    let heard = other.heard();
    assert!(!heard.contains(SECRET), "the secret was sent to another host: {heard:?}");
    assert_eq!(lines, ["403", "403", "403", "403", "403", "403", "200"], "{result}");
    assert!(!heard.contains("cofferdam_secret_"), "{heard:?}");
    Ok(())
}

/// Speaks TLS in a tunnel without believing anybody, and prints what answers a request.
const ASK_OVER_TLS: &str = "
import ssl
def over_tls(to, host, name=None):
    proxy = connect()
    if tunnel(proxy, to) != '200':
        return 'no tunnel'
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        stream = context.wrap_socket(proxy, server_hostname=name)
        stream.sendall(f'GET / HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n'.encode())
        text = b''
        while piece := stream.recv(65536):
            text += piece
    except OSError:
        return 'closed'
    return text.decode('latin1')
";

pub fn a_request_for_another_host_than_its_tunnel(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    // Nothing listens there any more: a request that is sent on fails at once.
    let listener = TcpListener::bind((EGRESS_ADDRESS, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (at, port) = (address.to_string(), address.port());
    let workspace = ruled(&client, &json!({"rules": {&at: [{}]}}));
    let program = format!(
        "{ASK_OVER_TLS}
for host, name in [('localhost:{port}', None), ('127.0.0.2:1', None), ('127.0.0.2', None), ('{at}', 'localhost')]:
    got = over_tls('{at}', host, name)
    print('mismatch' if 'host_mismatch' in got or got == 'closed' else got)
print('sent on' if 'egress.connect' in over_tls('{at}', '{at}') else 'none')
"
    );
    let result = run(&workspace, &program);
    assert_eq!(
        printed(&result),
        ["mismatch", "mismatch", "mismatch", "mismatch", "sent on"],
        "{result}"
    );
    let reasons = super::scene::reasons(&result);
    assert_eq!(&reasons[..4], ["host_mismatch"; 4], "{result}");
    Ok(())
}

pub fn an_authority_that_speaks_for_another_host(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let server = HostServer::start();
    let at = server.authority();
    let workspace = ruled(&client, &json!({"rules": {&at: [{}]}}));
    // All that a program ever gets of the authority: what the proxy shows, and the files.
    let program = format!(
        "import os, re, subprocess
shown = subprocess.run(
    ['openssl', 's_client', '-proxy', '127.0.0.1:3128', '-connect', '{at}', '-noservername', '-showcerts'],
    input=b'', capture_output=True, timeout=30).stdout.decode()
chain = re.findall('-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----', shown, re.S)
texts = [subprocess.run(['openssl', 'x509', '-noout', '-text'], input=one.encode(), capture_output=True).stdout.decode() for one in chain]
print(len(chain))
print('Name Constraints: critical' in texts[1], '127.0.0.2' in texts[1].split('Name Constraints')[-1])
print(any('PRIVATE' in open('/run/cofferdam/' + name, errors='replace').read() for name in os.listdir('/run/cofferdam')))
"
    );
    let result = run(&workspace, &program);
    assert_eq!(printed(&result), ["2", "True True", "False"], "{result}");
    Ok(())
}
