//! What is kept, and for whom.

use std::fs;
use std::path::{Path, PathBuf};

use cofferdam::evaluation::cache::{CacheKind, CacheSpace};

use super::scene::{CloneScene, Wanted, seen};

#[test]
fn a_full_hash_is_asked_for_once_and_a_branch_each_time() {
    let Some(mut scene) = CloneScene::new() else { return };
    let repository = scene.server.repository("r");
    let first = repository.commit("a", "1");
    let url = scene.server.url("r");
    let source = scene.commit_of(&url, &first);
    let (found, made) = scene.base(&source, &Wanted::default()).unwrap();
    assert!(!found.cached && !made.cached);
    let before = scene.server.requests().len();
    let (found, made) = scene.base(&source, &Wanted::default()).unwrap();
    assert!(found.cached && made.cached);
    // In another process too.
    scene.reopen();
    let (found, made) = scene.base(&source, &Wanted::default()).unwrap();
    assert!(found.cached && made.cached);
    assert_eq!(scene.server.requests().len(), before);
    let branch = scene.commit_of(&url, "main");
    let (found, made) = scene.base(&branch, &Wanted::default()).unwrap();
    assert!(found.cached && made.cached && scene.server.requests().len() > before);
    let second = repository.commit("a", "2");
    let (_, made) = scene.base(&branch, &Wanted::default()).unwrap();
    assert_eq!((made.base.base_commit.as_str(), made.cached), (second.as_str(), false));
    assert_eq!(seen(&made.base, "cat a; git rev-list --count HEAD"), "23");
    // An ancestor of what was fetched needs no server.
    let before = scene.server.requests().len();
    let parent = repository.git(&["rev-parse", &format!("{first}^")]);
    let (found, _) = scene.base(&scene.commit_of(&url, &parent), &Wanted::default()).unwrap();
    assert!(found.cached);
    assert_eq!(scene.server.requests().len(), before);
}

#[test]
fn another_token_has_a_cache_of_its_own_and_fresh_uses_none() {
    let Some(scene) = CloneScene::new() else { return };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    let other = Wanted { owner: "b", ..Wanted::default() };
    let fresh = Wanted { fresh: true, ..Wanted::default() };
    for wanted in [Wanted::default(), other, fresh] {
        let before = scene.server.packs_sent();
        let (found, made) = scene.base(&source, &wanted).unwrap();
        assert!(!found.cached && !made.cached, "{wanted:?}");
        assert!(scene.server.packs_sent() > before, "{wanted:?}");
    }
}

#[test]
fn first_clones_at_once_fetch_once() {
    let Some(scene) = CloneScene::new() else { return };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    let installing = Wanted::installing(&["echo made >> /deps/count"]);
    let cached: Vec<bool> = std::thread::scope(|scope| {
        let run = || {
            let (_, made) = scene.base(&source, &installing).unwrap();
            assert_eq!(seen(&made.base, "cat /deps/count"), "made");
            made.cached
        };
        let all: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(cached.iter().filter(|cached| !**cached).count(), 1);
    let fetches = scene.server.requests();
    // Two of protocol 2 for the list of refs, two for the pack.
    assert!(fetches.len() <= 4, "{fetches:?}");
}

#[test]
fn a_broken_mirror_is_made_anew() {
    let Some(mut scene) = CloneScene::new() else { return };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    scene.base(&source, &Wanted::default()).unwrap();
    scene.reopen();
    for pack in packs(&scene) {
        fs::remove_file(pack).unwrap();
    }
    bases(&scene).iter().for_each(|base| fs::remove_dir_all(base).unwrap());
    let (found, made) = scene.base(&source, &Wanted::default()).unwrap();
    assert!(!found.cached);
    assert_eq!(seen(&made.base, "cat a"), "1");
}

/// What a base has that a plain copy could lose.
const MARKED: &str = "echo made >> /deps/count; mkdir /deps/bin; echo 'echo run' > /deps/bin/run; chmod 750 /deps/bin/run; \
     ln /deps/count /deps/linked; ln -s count /deps/named; truncate -s 1M /deps/sparse; mkfifo /deps/fifo; \
     touch -d @1000000000 /deps/count; echo built > built.txt; echo kept > $HOME/kept";
const LOOK: &str = "cat /deps/count /deps/named built.txt a $HOME/kept; run; stat -c '%a %h %Y %s' /deps/count /deps/bin/run; \
     stat -c '%F %s' /deps/sparse /deps/fifo; test /deps/count -ef /deps/linked; git status --porcelain; \
     git rev-parse HEAD; python -c 'import sys; print(sys.prefix)'; find /deps /workspace ! -user $(id -u)";

#[test]
fn a_base_outlives_its_process_with_all_that_install_made() {
    let Some(mut scene) = CloneScene::new() else { return };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    let wanted = Wanted::installing(&[MARKED]);
    let (_, made) = scene.base(&source, &wanted).unwrap();
    let before = seen(&made.base, LOOK);
    assert!(!made.cached && before.contains("run\n") && before.contains("750"), "{before}");
    let asked = scene.server.requests().len();
    for _ in 0..2 {
        scene.reopen();
        let (found, made) = scene.base(&source, &wanted).unwrap();
        assert!(found.cached && made.cached);
        assert_eq!((seen(&made.base, LOOK), &made.base.base_commit), (before.clone(), &commit));
        seen(&made.base, "echo more >> /deps/count; echo 2 > a");
    }
    assert_eq!(scene.server.requests().len(), asked);
    // Another token, other commands, and one that wants nothing kept find none.
    for other in [
        Wanted { owner: "b", ..wanted.clone() },
        Wanted { fresh: true, ..wanted.clone() },
        Wanted::installing(&[MARKED, "true"]),
    ] {
        scene.reopen();
        assert!(!scene.base(&source, &other).unwrap().1.cached, "{other:?}");
    }
}

#[test]
fn files_of_a_task_have_a_base_that_outlives_its_process() {
    let Some(mut scene) = CloneScene::new() else { return };
    let directory = tempfile::TempDir::new().unwrap();
    fs::write(directory.path().join("a"), "1").unwrap();
    let wanted = Wanted::installing(&["echo made > /deps/count"]);
    let (_, made) = scene.base(&scene.files_of(directory.path()), &wanted).unwrap();
    scene.reopen();
    let (_, again) = scene.base(&scene.files_of(directory.path()), &wanted).unwrap();
    assert!(!made.cached && again.cached);
    assert_eq!(again.base.base_commit, made.base.base_commit);
    assert_eq!(
        seen(&again.base, "cat a /deps/count; git rev-parse HEAD"),
        format!("1made\n{}", made.base.base_commit)
    );
}

#[test]
fn a_base_that_is_torn_or_changed_is_made_anew() {
    let Some(mut scene) = CloneScene::new() else { return };
    let repository = scene.server.repository("r");
    let [one, two] = ["1", "2"].map(|text| repository.commit("a", text));
    let [one, two] = [one, two].map(|commit| scene.commit_of(&scene.server.url("r"), &commit));
    let wanted = Wanted::installing(&["echo made > /deps/count"]);
    scene.base(&one, &wanted).unwrap();
    let [kept] = <[PathBuf; 1]>::try_from(bases(&scene)).unwrap();
    let file = |name: &str| kept.join(name);
    let cut = |name: &str| {
        let length = fs::metadata(file(name)).unwrap().len();
        let open = fs::OpenOptions::new().write(true).open(file(name)).unwrap();
        open.set_len(length - 1).unwrap();
    };
    let change = |name: &str| {
        let mut bytes = fs::read(file(name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file(name), bytes).unwrap();
    };
    for name in ["base.json", "manifest", "contents"] {
        for spoil in [&cut as &dyn Fn(&str), &change, &|name| fs::remove_file(file(name)).unwrap()]
        {
            scene.reopen();
            assert!(scene.base(&one, &wanted).unwrap().1.cached, "{name} is whole");
            spoil(name);
            scene.reopen();
            let (_, made) = scene.base(&one, &wanted).unwrap();
            assert!(!made.cached, "{name}");
            assert_eq!(seen(&made.base, "cat a /deps/count"), "1made");
        }
    }
    // The whole base of another commit under its name.
    scene.base(&two, &wanted).unwrap();
    let other = bases(&scene).into_iter().find(|base| *base != kept).unwrap();
    fs::remove_dir_all(&kept).unwrap();
    fs::rename(other, &kept).unwrap();
    scene.reopen();
    let (_, made) = scene.base(&one, &wanted).unwrap();
    assert_eq!((made.cached, seen(&made.base, "cat a").as_str()), (false, "1"));
}

#[test]
fn an_install_that_fails_or_is_cancelled_leaves_no_entry() {
    let Some(scene) = CloneScene::new() else { return };
    let commit = scene.server.repository("r").commit("a", "1");
    let source = scene.commit_of(&scene.server.url("r"), &commit);
    let failing = Wanted::installing(&["exit 7"]);
    let cancelled = Wanted::installing(&["sleep 600"]);
    scene.base(&source, &failing).unwrap_err();
    let cancel = cancelled.cancel.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| scene.base(&source, &cancelled).unwrap_err());
        cancel.cancel();
    });
    scene.base(&source, &Wanted { goes_on: true, ..failing }).unwrap();
    assert!(bases(&scene).is_empty());
}

#[test]
fn the_least_recently_used_entries_of_all_caches_go() {
    const CACHE_MAX: u64 = 700 << 10;
    let within = |cache: &Path| CacheSpace::lasting(cache.join("cache"), CACHE_MAX);
    let Some(mut scene) = CloneScene::new() else { return };
    scene.reopen_with(|settings, cache| settings.cache = within(cache).into());
    let names = ["one", "two", "three"];
    let sources = names.map(|name| {
        let noise: String = (0..150_000_u64).map(|at| noise(at, name)).collect();
        let commit = scene.server.repository(name).commit("a", &noise);
        scene.commit_of(&scene.server.url(name), &commit)
    });
    for source in &sources {
        scene.base(source, &Wanted::default()).unwrap();
    }
    let left: u64 = within(scene.cache.path()).bytes().iter().map(|(_, bytes)| bytes).sum();
    assert!(left > 0 && left <= CACHE_MAX, "{left}");
    let is_kept = sources.iter().map(|source| {
        scene.reopen();
        let (found, made) = scene.base(source, &Wanted::default()).unwrap();
        found.cached && made.cached
    });
    assert_eq!(is_kept.rev().collect::<Vec<_>>(), [true, true, false]);
}

/// A character that no compression foresees.
fn noise(at: u64, seed: &str) -> char {
    let mixed = seed.bytes().fold(at.wrapping_add(1), |mixed, byte| {
        let mixed = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(byte);
        mixed ^ (mixed >> 29)
    });
    char::from(b'!' + u8::try_from(mixed % 93).unwrap())
}

/// The directories of bases in the cache.
fn bases(scene: &CloneScene) -> Vec<PathBuf> {
    let directory = scene.cache.path().join("cache").join(CacheKind::Bases.word());
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// The files of packs in all mirrors.
fn packs(scene: &CloneScene) -> Vec<PathBuf> {
    let mut pending = vec![scene.cache.path().to_owned()];
    let mut found = Vec::new();
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                pending.push(entry.path());
            } else if entry.path().extension().is_some_and(|extension| extension == "pack") {
                found.push(entry.path());
            }
        }
    }
    found
}
