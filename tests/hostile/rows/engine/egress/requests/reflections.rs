//! Hosts that send a secret back, in every way that a program could read.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use cofferdam_test_server::recorded::RecordedHost;
use serde_json::{Value, json};

use super::super::scene::printed;
use super::scene::{attack, engine, ruled};
use crate::Unexercised;
use crate::target::{EGRESS_ADDRESS, Target};

/// Its escapes differ from itself in URLs and in JSON.
const HARD: &str = "sk/+\"nev\\er&<in>=a 'sandbox'~";
const HARD_SPELLINGS: [&str; 6] = [
    HARD,
    "sk%2F%2B%22nev%5Cer%26%3Cin%3E%3Da%20%27sandbox%27~",
    "sk%2f%2b%22nev%5cer%26%3cin%3e%3da%20%27sandbox%27~",
    "sk/+\\\"nev\\\\er&<in>=a 'sandbox'~",
    "sk\\/+\\\"nev\\\\er&<in>=a 'sandbox'~",
    "sk/+\\\"nev\\\\er\\u0026\\u003cin\\u003e=a \\u0027sandbox\\u0027~",
];
/// It can stand in the name of a header.
const TOKEN: &str = "token-never-in-a-sandbox";

fn network(at: &str) -> Value {
    json!({
        "rules": {at: [
            {"plain": true, "headers": {"authorization": "{{secret.hard}}", "x-api-key": "{{secret.token}}"}},
        ]},
        "secrets": {"hard": {"value": HARD, "hosts": [at]}, "token": {"value": TOKEN, "hosts": [at]}},
    })
}

/// What follows the `/` of the first line.
fn asked(head: &str) -> &str {
    head.split(['/', ' ']).nth(2).unwrap_or_default()
}

/// The program that asks for each of `paths`, and prints all that comes back.
fn asking(at: &str, paths: &[String]) -> String {
    format!(
        "for path in {paths:?}:\n    print(path, repr(get('{at}', '/' + path).decode('latin1')))\n"
    )
}

pub fn in_heads_and_trailers(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let host = RecordedHost::answering(EGRESS_ADDRESS, None, |head| {
        let url = HARD_SPELLINGS[1];
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n";
        match asked(head) {
            "status" => format!("HTTP/1.1 299 {TOKEN} {HARD}\r\nContent-Length: 0\r\n\r\n"),
            "value" => format!("{ok}X-Echo: a{HARD}b{TOKEN}{TOKEN}\r\nX-Echo: {HARD}\r\n\r\n"),
            "name" => format!("{ok}{TOKEN}: 1\r\nX-{TOKEN}-Y: 2\r\n\r\n"),
            "location" => format!("HTTP/1.1 302 F\r\nLocation: http://x/?k={url}\r\nContent-Length: 0\r\n\r\n"),
            "cookie" => format!("{ok}Set-Cookie: a={TOKEN}; Path=/\r\nSet-Cookie: b=\"{}\"\r\n\r\n", STANDARD.encode(HARD)),
            "authenticate" => format!("HTTP/1.1 401 {TOKEN}\r\nWWW-Authenticate: Basic realm=\"{HARD}\"\r\nContent-Length: 0\r\n\r\n"),
            "hints" => format!("HTTP/1.1 103 {TOKEN}\r\nLink: <{TOKEN}>\r\n\r\n{ok}\r\n"),
            "hop" => format!("{ok}Connection: x-hop\r\nX-Hop: {TOKEN}\r\nKeep-Alive: {TOKEN}\r\n\r\n"),
            "trailers" => format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-end\r\n\r\n\
                 2\r\nok\r\n0\r\nX-End: {HARD}\r\nX-{TOKEN}: 1\r\nX-End: {TOKEN}\r\n\r\n"
            ),
            "chunks" => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a={TOKEN}\r\nok\r\n0\r\n\r\n"),
            "folded" => format!("{ok}X-Echo: {}\r\n {}\r\n\r\n", &TOKEN[..9], &TOKEN[9..]),
            other => format!("HTTP/1.1 404 {other}\r\nContent-Length: 0\r\n\r\n"),
        }
        .into_bytes()
    });
    let at = host.authority();
    let workspace = ruled(&client, &network(&at));
    let paths = [
        "status",
        "value",
        "name",
        "location",
        "cookie",
        "authenticate",
        "hints",
        "hop",
        "trailers",
        "chunks",
        "folded",
    ]
    .map(str::to_owned);
    let mut program = asking(&at, &paths);
    program.push_str(&format!(
        "print(repr(get('{at}', '/trailers', 'TE: trailers\\r\\n').decode('latin1')))\n"
    ));
    let result = attack(&workspace, &program);
    let shown = result["stdout"].as_str().unwrap().replace("\\\\", "\\").replace("\\'", "'");
    let spellings = HARD_SPELLINGS.map(str::to_owned).into_iter();
    for spelling in spellings.chain([TOKEN.to_owned(), STANDARD.encode(HARD), TOKEN.to_uppercase()])
    {
        assert!(!shown.contains(&spelling), "{spelling}: {shown}");
    }
    assert!(!shown.to_lowercase().contains(TOKEN), "{shown}");
    assert!(shown.matches("[redacted]").count() >= 8, "{shown}");
    assert_eq!(host.heard().matches(TOKEN).count(), paths.len() + 1, "the host did not get it");
    Ok(())
}

/// Every spelling of both secrets, with something around it.
fn spelled() -> Vec<String> {
    let mut all: Vec<String> = HARD_SPELLINGS.map(str::to_owned).to_vec();
    for secret in [HARD, TOKEN] {
        all.push(secret.bytes().map(|byte| format!("%{byte:02X}")).collect());
        for before in ["", "a", "ab"] {
            all.push(STANDARD.encode(format!("{before}{secret}")));
            all.push(URL_SAFE.encode(format!("{before}{secret}?")));
        }
    }
    all.push(HARD_SPELLINGS[1].replace("%20", "+"));
    // What begins like it, and begins anew.
    all.push(format!("{}{TOKEN}", &TOKEN[..10]));
    all.push(format!("{TOKEN}{TOKEN}"));
    all
}

pub fn in_bodies(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let spellings = spelled();
    let bodies = spellings.clone();
    let host = RecordedHost::serving(EGRESS_ADDRESS, None, move |stream| {
        let Some(head) = stream.read_head() else { return };
        let (framing, number) = asked(&head).split_once('-').unwrap_or_default();
        let body = format!("<{}>", bodies[number.parse::<usize>().unwrap()]);
        let (length, head) = (body.len(), "HTTP/1.1 200 OK\r\n");
        match framing {
            "length" => {
                stream.send(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes());
            }
            "closed" => {
                // In pieces of their own, not of one byte: the proxy reads what has come.
                stream.send(format!("{head}\r\n").as_bytes());
                for piece in body.as_bytes().chunks(7) {
                    stream.send(piece);
                }
            }
            _ => {
                let chunks = body
                    .as_bytes()
                    .chunks(1)
                    .map(|byte| format!("1\r\n{}\r\n", char::from(byte[0])));
                let chunks = chunks.collect::<String>();
                stream.send(
                    format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n").as_bytes(),
                );
            }
        }
    });
    let at = host.authority();
    let workspace = ruled(&client, &network(&at));
    let numbers = 0..spellings.len();
    let paths: Vec<String> = numbers
        .flat_map(|number| {
            ["length", "closed", "chunks"].map(|framing| format!("{framing}-{number}"))
        })
        .collect();
    let result = attack(&workspace, &asking(&at, &paths));
    let shown = result["stdout"].as_str().unwrap().replace("\\\\", "\\").replace("\\'", "'");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), paths.len(), "{result}");
    for (line, path) in lines.iter().zip(&paths) {
        assert!(line.contains("HTTP/1.1 200") && line.contains("[redacted]"), "{path}: {line}");
    }
    // Base64 has characters of what is around it at both ends.
    let told = spellings.iter().map(|spelling| &spelling[2..spelling.len() - 4]);
    for spelling in told {
        assert!(!shown.contains(spelling), "{spelling}: {shown}");
    }
    Ok(())
}

pub fn in_parts_and_encodings(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let host = RecordedHost::answering(EGRESS_ADDRESS, None, |head| {
        let (status, headers) = match asked(head) {
            "gzip" => (200, "Content-Encoding: gzip\r\n"),
            "deflate" => (200, "Content-Encoding: identity\r\nContent-Encoding: deflate\r\n"),
            "list" => (200, "Content-Encoding: identity, br\r\n"),
            "unknown" => (200, "Content-Encoding: x-own\r\n"),
            "error" => (500, "Content-Encoding: gzip\r\n"),
            "part" => (206, "Content-Range: bytes 0-9/100\r\n"),
            "parts" => (206, "Content-Type: multipart/byteranges; boundary=x\r\n"),
            "transfer" => {
                return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
                    .to_vec();
            }
            "identity" => (200, "Content-Encoding: Identity\r\nContent-MD5: x\r\n"),
            _ => (200, "Digest: x\r\nContent-Digest: x\r\nETag: x\r\n"),
        };
        let body = &TOKEN[..10];
        format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: 10\r\n\r\n{body}").into_bytes()
    });
    let at = host.authority();
    let workspace = ruled(&client, &network(&at));
    let program = format!(
        "at = '{at}'
for path in ['gzip', 'deflate', 'list', 'unknown', 'error', 'part', 'parts', 'transfer', 'identity', 'none']:
    print(path, code(get(at, '/' + path, 'Accept-Encoding: gzip, br\\r\\n')))
asked = ''.join(f'{{name}}: bytes=0-3\\r\\n' for name in ['Range', 'If-Range', 'If-Match', 'If-None-Match', 'If-Modified-Since', 'If-Unmodified-Since', 'range', 'Accept-Encoding'])
for first in range(0, 12, 3):
    print('slice', code(get(at, '/slice', asked + f'Range: bytes={{first}}-{{first + 2}}\\r\\n')))
print('digests', len(re.findall('(?i)digest|content-md5|content-length', get(at, '/none').decode())))
"
    );
    let result = attack(&workspace, &program);
    let lines = printed(&result);
    let words = ["gzip", "deflate", "list", "unknown", "error", "part", "parts", "transfer"];
    let refused = words.map(|word| format!("{word} 502 encoding"));
    assert_eq!(lines[..8], refused, "{result}");
    assert_eq!(lines[8..10], ["identity 200", "none 200"], "{result}");
    assert_eq!(
        lines[10..],
        ["slice 200", "slice 200", "slice 200", "slice 200", "digests 0"],
        "{result}"
    );
    let heard = host.heard().to_lowercase();
    assert_eq!(heard.matches("accept-encoding: identity\r\n").count(), 15, "{heard}");
    assert!(!heard.contains(": gzip") && !heard.contains("bytes="), "{heard}");
    Ok(())
}
