//! What OpenSSL, Java and the files say of an authority.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::authority::{Authority, AuthorityScope};
use super::bundles::{trust_files, with_other_root};
use super::key_store::{key_store, stored_certificates};
use super::shown_files::TrustFiles;
use crate::egress::hosts::address::AddressBlock;
use crate::egress::hosts::literal::AskedHost;

fn scope(names: &[&str], addresses: &[&str]) -> AuthorityScope {
    AuthorityScope {
        names: names.iter().map(ToString::to_string).collect(),
        blocks: addresses.iter().map(|one| AddressBlock::one(one.parse().unwrap())).collect(),
    }
}

fn write(directory: &Path, name: &str, der: &[u8]) {
    fs::write(directory.join(name), der).unwrap();
}

/// Whether OpenSSL accepts, by its strict rules, what `authority` says of `host`.
fn verifies(authority: &Authority, host: &str) -> (bool, String) {
    let directory = tempfile::tempdir().unwrap();
    let host = AskedHost::parse(host).unwrap();
    let chain = authority.certificates(&host).unwrap();
    for (name, certificate) in
        [("root", authority.root()), ("leaf", &chain[0]), ("intermediate", &chain[1])]
    {
        write(directory.path(), name, certificate);
        let made = Command::new("openssl")
            .args(["x509", "-inform", "DER", "-in", name, "-out", &format!("{name}.pem")])
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }
    let asked = match host.address() {
        Some(address) => ["-verify_ip".to_owned(), address.to_string()],
        None => ["-verify_hostname".to_owned(), host.to_string()],
    };
    let output = Command::new("openssl")
        .args(["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", "root.pem"])
        .args(["-untrusted", "intermediate.pem"])
        .args(asked)
        .arg("leaf.pem")
        .current_dir(directory.path())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn an_authority_speaks_for_the_hosts_of_its_rules_alone() {
    for (names, addresses, host, is_trusted) in [
        (vec!["a.test"], vec![], "a.test", true),
        (vec!["a.test", "b_c.test"], vec![], "b_c.test", true),
        (vec!["a.test"], vec![], "x.a.test", true),
        (vec!["a.test"], vec![], "b.test", false),
        (vec!["a.test"], vec![], "xa.test", false),
        (vec!["a.test"], vec![], "192.0.2.1", false),
        (vec!["a.test"], vec![], "[2001:db8::1]", false),
        (vec!["a.test"], vec!["192.0.2.1"], "192.0.2.1", true),
        (vec!["a.test"], vec!["192.0.2.1"], "192.0.2.2", false),
        (vec!["a.test"], vec!["192.0.2.1"], "[2001:db8::1]", false),
        (vec![], vec!["192.0.2.1"], "a.test", false),
        (vec![], vec!["2001:db8::1"], "[2001:db8::1]", true),
        (vec![], vec!["2001:db8::1"], "[2001:db8::2]", false),
    ] {
        let authority = Authority::new(&scope(&names, &addresses)).unwrap();
        let (verified, said) = verifies(&authority, host);
        assert_eq!(verified, is_trusted, "{names:?} {addresses:?} {host}: {said}");
    }
}

#[test]
fn two_authorities_do_not_trust_each_other_and_show_no_key() {
    let one = Authority::new(&scope(&["a.test"], &[])).unwrap();
    let two = Authority::new(&scope(&["a.test"], &[])).unwrap();
    assert_ne!(one.root(), two.root());
    assert_ne!(one.host_key(), two.host_key());
    assert_eq!(format!("{one:?}"), "Authority([redacted])");
    let host = AskedHost::parse("a.test").unwrap();
    let certificates = [&one, &one].map(|authority| authority.certificates(&host).unwrap());
    assert_ne!(certificates[0][0], certificates[1][0], "numbers of certificates differ");
}

/// A certificate, and a bundle of it.
fn bundle() -> (CertificateDer<'static>, Vec<u8>) {
    let known = Authority::new(&scope(&["known.test"], &[])).unwrap().root().clone();
    let files = trust_files(Some(&known), &|_| None, &Vec::new);
    let root = files.iter().find(|file| file.path == "/run/cofferdam/ca-root.pem").unwrap();
    (known, root.contents.clone())
}

/// A sandbox's root with `bundle`, without its last newline, and a key store of Java.
fn reader(bundle: &[u8]) -> impl Fn(&str) -> Option<Vec<u8>> {
    move |path| match path {
        "/etc/ssl/cert.pem" => Some(bundle.trim_ascii_end().to_vec()),
        "/etc/ssl/certs/java/cacerts" => Some(vec![0xfe, 0xed]),
        _ => None,
    }
}

#[test]
fn the_root_is_added_to_each_bundle_that_is_there() {
    let (known, text) = bundle();
    let root = Authority::new(&scope(&["a.test"], &[])).unwrap().root().clone();
    let read = reader(&text);
    let host_bundle = || panic!("the sandbox has a bundle");
    let files = trust_files(Some(&root), &read, &host_bundle);
    let paths: Vec<_> = files.iter().map(|file| file.path).collect();
    assert_eq!(
        paths,
        [
            "/etc/ssl/cert.pem",
            "/etc/ssl/certs/java/cacerts",
            "/run/cofferdam/ca-bundle.pem",
            "/run/cofferdam/ca-root.pem",
            "/run/cofferdam/ca-bundle.p12"
        ]
    );
    let of = |file: usize| -> Vec<CertificateDer<'static>> {
        let contents = &files[file].contents;
        CertificateDer::pem_slice_iter(contents).map(Result::unwrap).collect()
    };
    assert_eq!(
        [of(0), of(2)],
        [vec![known.clone(), root.clone()], vec![known.clone(), root.clone()]]
    );
    assert_eq!(of(3), std::slice::from_ref(&root));
    assert_eq!(stored_certificates(&files[1].contents), [known.clone(), root.clone()]);
    let other = Authority::new(&scope(&["b.test"], &[])).unwrap().root().clone();
    let replaced = with_other_root(&files[2].contents, Some(&root), &other);
    let found: Vec<_> = CertificateDer::pem_slice_iter(&replaced).map(Result::unwrap).collect();
    assert_eq!(found, [known.clone(), other.clone()]);
    let replaced = with_other_root(&files[4].contents, Some(&root), &other);
    assert_eq!(stored_certificates(&replaced), [known, other]);
    // A sandbox without a bundle has those of this host.
    let files = trust_files(Some(&root), &|_| None, &|| text.clone());
    assert_eq!(files[0].path, "/run/cofferdam/ca-bundle.pem");
    assert!(files[0].contents.starts_with(&text));
}

#[test]
fn openssl_and_java_read_the_store() {
    let (known, _) = bundle();
    let root = Authority::new(&scope(&["a.test"], &[])).unwrap().root().clone();
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "store.p12", &key_store(&[known, root]));
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(directory.path()).output();
        let output = output.ok()?;
        let said = [output.stdout, output.stderr].concat();
        Some(String::from_utf8_lossy(&said).into_owned())
    };
    let listed =
        run("openssl", &["pkcs12", "-in", "store.p12", "-nokeys", "-nomacver", "-passin", "pass:"]);
    let listed = listed.unwrap();
    assert_eq!(listed.matches("BEGIN CERTIFICATE").count(), 2, "{listed}");
    for password in ["changeit", "anything"] {
        let arguments = ["-list", "-keystore", "store.p12", "-storepass", password];
        let listed = run("keytool", &arguments).unwrap();
        assert_eq!(listed.matches("trustedCertEntry").count(), 2, "{listed}");
    }
}

#[test]
fn shown_files_stay_the_same_files_and_go_with_their_sandbox() {
    let root = Authority::new(&scope(&["a.test"], &[])).unwrap().root().clone();
    let other = Authority::new(&scope(&["b.test"], &[])).unwrap().root().clone();
    let directory = tempfile::tempdir().unwrap();
    let mut files = TrustFiles::write(directory.path(), Some(&root), &|_| None).unwrap();
    let shown = files.shown();
    let open = fs::File::open(&shown[0].source).unwrap();
    files.replace(&other).unwrap();
    let text = std::io::read_to_string(open).unwrap();
    let last = CertificateDer::pem_slice_iter(text.as_bytes()).map(Result::unwrap).last();
    assert_eq!(last, Some(other));
    drop(files);
    assert!(shown.iter().all(|file| !file.source.exists()));
}

#[test]
fn files_without_a_root_of_ours_get_one_later() {
    let (known, text) = bundle();
    let root = Authority::new(&scope(&["a.test"], &[])).unwrap().root().clone();
    let read = reader(&text);
    let bare = trust_files(None, &read, &Vec::new);
    assert_eq!(bare[0].contents, text.trim_ascii_end());
    assert_eq!(stored_certificates(&bare[1].contents), std::slice::from_ref(&known));
    assert_eq!(bare[3].contents, b"");
    let ruled = trust_files(Some(&root), &read, &Vec::new);
    for (bare, ruled) in bare.iter().zip(&ruled) {
        assert_eq!(with_other_root(&bare.contents, None, &root), ruled.contents, "{}", bare.path);
    }
}
