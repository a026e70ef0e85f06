//! The socket of the proxy, and the connections to it.

use cofferdam_test_server::service::wait_until;
use serde_json::json;

use super::scene::{HostServer, body, printed, reaching, reaching_in, run};
use crate::Unexercised;
use crate::engine::{SOON, Workspace};
use crate::target::Target;

pub fn second_request_on_a_kept_connection(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let (allowed, other) = (HostServer::start(), HostServer::start());
    let workspace = reaching(&client, &[allowed.authority()]);
    let (good, bad) = (allowed.url(), other.url());
    let program = format!(
        "proxy = connect()
print(ask(proxy, '{good}'), ask(proxy, '{good}'))
print(ask(proxy, '{bad}'))
proxy = connect()
host = '{bad}'.split('/')[2]
print(ask(proxy, '{good}', f'X: y\\r\\n'))
proxy.sendall(f'GET {good} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\nGET {bad} HTTP/1.1\\r\\nHost: {{host}}\\r\\n\\r\\n'.encode())
first = answer(proxy)
print(first, answer(proxy) if first != 'closed' else first)
"
    );
    let result = run(&workspace, &program);
    let lines = printed(&result);
    assert_eq!((lines[0], lines[2]), ("200 200", "200"), "{result}");
    assert!(["403", "closed"].contains(&lines[1]), "{result}");
    assert!(!lines[3].ends_with("200"), "{result}");
    assert_eq!(other.came(), 0, "it was reached");
    Ok(())
}

pub fn the_listener_itself(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let server = HostServer::start();
    let url = server.url();
    let allow = [server.authority()];
    let program = format!(
        "import itertools, os
options = [socket.SO_REUSEADDR, socket.SO_REUSEPORT, 15]
for count in range(4):
    for some in itertools.combinations(options, count):
        for family, address in [(2, '127.0.0.1'), (2, '0.0.0.0'), (10, '::'), (10, '::ffff:127.0.0.1')]:
            s = socket.socket(family)
            try:
                for option in some:
                    s.setsockopt(socket.SOL_SOCKET, option, 1)
                if family == 10:
                    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                s.bind((address, 3128))
                s.listen()
                print('taken', some, address)
            except OSError:
                pass
            s.close()
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        links = [os.readlink(f'/proc/{{pid}}/fd/{{fd}}') for fd in os.listdir(f'/proc/{{pid}}/fd')]
    except OSError:
        continue
    print(*[link for link in links if link.startswith('socket:')], sep='\\n', end='')
print(ask(connect(), '{url}'))
"
    );
    for sandbox in ["program", "workspace"] {
        let workspace = reaching_in(&client, sandbox, &allow)?;
        // The second one finds what the first has left.
        for _ in 0..2 {
            assert_eq!(printed(&run(&workspace, &program)), ["200"], "{sandbox}");
        }
    }
    Ok(())
}

/// Leaves processes that send requests again and again, and prints a line once each has sent one.
const KEPT: &str = "
import os
ends, told = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            proxy = connect()
            while True:
                if ask(proxy, url) != '200':
                    proxy = connect()
                elif told is not None:
                    os.write(told, b'x')
                    told = None
        os._exit(0)
for _ in range(4):
    os.read(ends, 1)
print('up', flush=True)
";
/// Requests of the program that shows that no other sends any.
const REQUESTS: usize = 20;
/// How often that is looked at: the proxy may still be sending on the last request of a dead process.
const LOOKS: usize = 5;

pub fn a_child_that_keeps_a_tunnel(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let server = HostServer::start();
    let url = server.url();
    let leave = format!("url = '{url}'\n{KEPT}");
    let alone = reaching_in(&client, "program", &[server.authority()])?;
    assert_eq!(printed(&run(&alone, &leave)), ["up"]);
    assert_nothing_sends(&alone, &server);
    let shared = reaching_in(&client, "workspace", &[server.authority()])?;
    let session = shared.start(&body(&format!("{leave}time.sleep(1000)\n")));
    wait_until("the first request", SOON, || shared.get(&session).json()["lines"] == 1);
    let killed = shared.post(&format!("{session}/kill"), &json!({"grace_ms": 1}));
    assert_eq!(killed.status, 200, "{}", killed.json());
    assert_nothing_sends(&shared, &server);
    Ok(())
}

/// Asserts that no process of the workspace sends requests, and that no connection is open.
#[track_caller]
fn assert_nothing_sends(workspace: &Workspace<'_>, server: &HostServer) {
    let program = format!("for _ in range({REQUESTS}): print(ask(connect(), '{}'))", server.url());
    let is_alone = |_| {
        let before = server.came();
        assert_eq!(printed(&run(workspace, &program)), ["200"; REQUESTS]);
        server.came() == before + REQUESTS
    };
    assert!((0..LOOKS).any(is_alone), "requests of a program that has ended");
    server.wait_closed();
}

pub fn more_connections_than_there_may_be(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let server = HostServer::start();
    let url = server.url();
    let workspace = reaching(&client, &[server.authority()]);
    let program = format!(
        "held = []
for number in range(100):
    proxy = connect()
    if ask(proxy, '{url}') == '200':
        held.append(proxy)
    else:
        proxy.close()
print(len(held))
for proxy in held:
    proxy.close()
soon = time.monotonic() + 20
while (last := ask(connect(), '{url}')) != '200' and time.monotonic() < soon:
    time.sleep(0.05)
print(last)
"
    );
    let result = run(&workspace, &program);
    let lines = printed(&result);
    let kept: usize = lines[0].parse().unwrap();
    assert!((1..=64).contains(&kept), "{kept}");
    assert_eq!(lines[1], "200", "{result}");
    Ok(())
}
