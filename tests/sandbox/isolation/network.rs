//! A program reaches only itself over the network.

use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use cofferdam_test_support::{self as support, Program, lines_of, stdout_of};

#[test]
fn there_is_one_interface_and_no_route() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::python(
        "import socket\n\
         print([line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line])\n\
         print(len(open('/proc/net/route').readlines()) - 1)\n\
         print({line.split()[-1] for line in open('/proc/net/ipv6_route')} - {'lo'})\n\
         for address in '192.0.2.1', '8.8.8.8', '169.254.169.254', '10.0.0.1':\n\
         \u{20}   try: socket.create_connection((address, 80), 5); print('connected')\n\
         \u{20}   except OSError as error: print(error.errno)\n",
    ));
    let unreachable = libc::ENETUNREACH.to_string();
    let lines = lines_of(&report);
    assert_eq!(lines[..3], ["['lo']", "0", "set()"]);
    assert_eq!(lines[3..], [unreachable.as_str(); 4]);
}

#[test]
fn the_loopback_of_the_host_is_separate() {
    let Some(host) = support::host() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    TcpStream::connect(("127.0.0.1", port)).expect("the host reaches its own listener");
    let report = host.run(Program::python(&format!(
        "import socket\n\
         try: socket.create_connection(('127.0.0.1', {port}), 5); print('connected')\n\
         except ConnectionRefusedError: print('refused')\n"
    )));
    assert_eq!(stdout_of(&report), "refused\n");
}

#[test]
fn the_hosts_abstract_sockets_are_out_of_reach() {
    let Some(host) = support::host() else { return };
    let name = format!("cofferdam-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    UnixStream::connect_addr(&address).expect("the host reaches its own listener");
    let report = host.run(Program::python(&format!(
        "import socket\n\
         client = socket.socket(socket.AF_UNIX)\n\
         try: client.connect('\\0{name}'); print('connected')\n\
         except ConnectionRefusedError: print('refused')\n\
         print(open('/proc/net/unix').read().count('{name}'))\n"
    )));
    assert_eq!(lines_of(&report), ["refused", "0"]);
    drop(listener);
}

#[test]
fn a_program_can_connect_to_itself() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::python(
        "import socket\n\
         server = socket.create_server(('127.0.0.1', 0))\n\
         client = socket.create_connection(server.getsockname())\n\
         client.sendall(b'hello')\n\
         print(server.accept()[0].recv(5).decode())\n",
    ));
    assert_eq!(stdout_of(&report), "hello\n");
}

#[test]
fn sockets_that_reach_beyond_namespaces_cannot_be_created() {
    let Some(host) = support::host() else { return };
    let report = host.run(Program::python(
        "import errno, socket\n\
         for family, kind, protocol in (40, 1, 0), (17, 3, 0), (38, 5, 0), (2, 3, 1), (16, 3, 15):\n\
         \u{20}   try: socket.socket(family, kind, protocol); print('made')\n\
         \u{20}   except OSError as error: print(errno.errorcode[error.errno])\n",
    ));
    assert_eq!(
        lines_of(&report),
        ["EAFNOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT", "EPERM", "EAFNOSUPPORT"],
        "vsock, packet, alg, raw inet, netlink uevent"
    );
}
