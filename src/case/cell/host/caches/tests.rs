use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::SystemTime;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::*;

const BYTES_MAX: u64 = 1 << 20;

struct Scene(TempDir);

impl Scene {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn caches(&self, owner: &str) -> ContainerCaches {
        ContainerCaches::new(self.0.path().join("caches"), owner, BYTES_MAX)
    }

    fn of(&self, owner: &str, image: &str) -> ImageCaches {
        self.caches(owner).of_image(image, &CancelToken::new().unwrap()).unwrap()
    }

    fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    }

    /// A directory with one file that has `text`.
    fn made(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory(name);
        fs::write(path.join("file"), text).unwrap();
        path
    }

    /// The text of that file in a copy of what is kept at `path`.
    fn kept(&self, caches: &ImageCaches, path: &str) -> Option<String> {
        let copy = self.directory(&Uuid::new_v4().simple().to_string());
        caches.copy_to(Path::new(path), &copy).unwrap();
        fs::read_to_string(copy.join("file")).ok()
    }
}

#[test]
fn a_cache_is_that_of_its_token_image_and_path() {
    let scene = Scene::new();
    let made = scene.made("made", "one");
    assert!(scene.of("t", "i").keep(Path::new("p"), &made).unwrap());
    for (owner, image, path, wanted) in [
        ("t", "i", "p", Some("one")),
        ("u", "i", "p", None),
        ("t", "j", "p", None),
        ("t", "i", "q", None),
    ] {
        let found = scene.kept(&scene.of(owner, image), path);
        assert_eq!(found.as_deref(), wanted, "{owner} {image} {path}");
    }
    fs::write(made.join("file"), "two").unwrap();
    let caches = scene.of("t", "i");
    assert!(caches.keep(Path::new("p"), &made).unwrap());
    assert_eq!(scene.kept(&caches, "p").as_deref(), Some("two"));
    assert_eq!(fs::read_dir(scene.caches("t").kept()).unwrap().count(), 1);
}

#[test]
fn links_stay_links_and_special_files_and_set_id_bits_are_left_out() {
    let scene = Scene::new();
    let (made, outside) = (scene.made("made", "in"), scene.made("outside", "secret"));
    symlink(outside.join("file"), made.join("link")).unwrap();
    symlink(&outside, made.join("directory")).unwrap();
    mkfifo(&made.join("fifo"), Mode::S_IRWXU).unwrap();
    fs::set_permissions(made.join("file"), fs::Permissions::from_mode(0o6755)).unwrap();
    let caches = scene.of("", "i");
    assert!(caches.keep(Path::new("p"), &made).unwrap());
    let copy = scene.directory("copy");
    caches.copy_to(Path::new("p"), &copy).unwrap();
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), outside.join("file"));
    assert_eq!(fs::read_link(copy.join("directory")).unwrap(), outside);
    assert!(!copy.join("fifo").exists());
    assert_eq!(fs::metadata(copy.join("file")).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn what_cannot_be_kept_leaves_what_was_there() {
    let scene = Scene::new();
    let caches = scene.of("", "i");
    let (path, good) = (Path::new("p"), scene.made("good", "good"));
    assert!(caches.keep(path, &good).unwrap());
    let large = scene.made("large", "large");
    fs::write(large.join("bytes"), vec![0; usize::try_from(BYTES_MAX).unwrap()]).unwrap();
    assert!(caches.keep(path, &large).is_err());
    assert!(caches.keep(path, &scene.0.path().join("none")).is_err());
    assert_eq!(scene.kept(&caches, "p").as_deref(), Some("good"));
    // A process was killed while it copied.
    fs::create_dir(scene.caches("").kept().join("killed.part")).unwrap();
    assert!(caches.keep(path, &good).unwrap());
    assert_eq!(fs::read_dir(scene.caches("").kept()).unwrap().count(), 1);
}

#[test]
fn those_that_were_not_used_for_the_longest_time_go() {
    let scene = Scene::new();
    let caches = scene.of("", "i");
    let made = scene.made("made", "");
    fs::write(made.join("file"), "x".repeat(400_000)).unwrap();
    for (age, path) in ["a", "b"].into_iter().enumerate() {
        assert!(caches.keep(Path::new(path), &made).unwrap());
        let used = SystemTime::now() - Duration::from_secs(1000 - u64::try_from(age).unwrap());
        File::open(caches.entry(Path::new(path))).unwrap().set_modified(used).unwrap();
    }
    // It is used again.
    assert!(scene.kept(&caches, "a").is_some());
    assert!(caches.keep(Path::new("c"), &made).unwrap());
    let left = ["a", "b", "c"].map(|path| scene.kept(&caches, path).is_some());
    assert_eq!(left, [true, false, true]);
}

#[test]
fn one_at_a_time_has_the_turn_of_an_image() {
    let scene = Scene::new();
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..8 {
            let (scene, inside, most) = (&scene, &inside, &most);
            scope.spawn(move || {
                let caches = scene.of("", "i");
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let before = scene.kept(&caches, "p").unwrap_or_default();
                let made = scene.made(&format!("made-{number}"), &format!("{before}{number}"));
                assert!(caches.keep(Path::new("p"), &made).unwrap());
                inside.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    assert_eq!(most.into_inner(), 1);
    let mut found: Vec<_> = scene.kept(&scene.of("", "i"), "p").unwrap().chars().collect();
    found.sort_unstable();
    assert_eq!(found.into_iter().collect::<String>(), "01234567");
}
