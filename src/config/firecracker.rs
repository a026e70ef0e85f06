//! What the environment says of the backend `firecracker`.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::parse::parse_decimal;
use super::{FIRECRACKER_NAMES, RawConfig};

/// Its presence is what asks for the backend.
const KERNEL: &str = "FIRECRACKER_KERNEL";
/// Its presence is what asks for a jail.
const JAILER: &str = "FIRECRACKER_JAILER";
/// What is said of jails, which means nothing without one.
const OF_JAILER: [&str; 3] =
    ["FIRECRACKER_JAILER_CHROOT_BASE", "FIRECRACKER_JAILER_GID", "FIRECRACKER_JAILER_UID"];
const BIN: &str = "/usr/bin/firecracker";
const WORK_DIR: &str = "/var/lib/cofferdam-firecracker";
/// Where the jailer itself would make jails.
const CHROOT_BASE: &str = "/srv/jailer";
/// The jailer starts in another directory than this process does.
const WANTED_PATH: &str = "an absolute path";
/// As root a jail would hold nothing.
const WANTED_ID: &str = "a whole number from 1 to 4294967294";

/// Where the parts of virtual machines are. Every path is absolute; none has been looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirecrackerConfig {
    /// Firecracker's binary.
    pub firecracker: PathBuf,
    /// The guest's kernel.
    pub kernel: PathBuf,
    /// The image of the guest's root file system.
    pub root_image: PathBuf,
    /// A directory with the content of that image.
    pub root_directory: PathBuf,
    /// An initramfs, where the image lacks the guest's first program.
    pub initrd: Option<PathBuf>,
    /// Where jobs have their files while they run.
    pub work_directory: PathBuf,
    /// What confines Firecracker; none where it runs as the service does.
    pub jailer: Option<JailerConfig>,
}

/// How Firecracker is confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JailerConfig {
    /// The jailer's binary.
    pub binary: PathBuf,
    /// The user that Firecracker becomes, not root.
    pub uid: u32,
    /// And the group, not root's.
    pub gid: u32,
    /// Where jails are made.
    pub chroot_base: PathBuf,
}

impl RawConfig {
    pub(super) fn firecracker(&mut self) -> Option<FirecrackerConfig> {
        if !self.has(KERNEL) {
            self.refuse_without(KERNEL, &FIRECRACKER_NAMES);
            return None;
        }
        // All of them are read in any case, so that every bad value is found.
        let kernel = self.needed_path(KERNEL);
        let root_image = self.needed_path("FIRECRACKER_ROOT_IMAGE");
        let root_directory = self.needed_path("FIRECRACKER_ROOT_DIRECTORY");
        let config = FirecrackerConfig {
            firecracker: self.absolute("FIRECRACKER_BIN").unwrap_or_else(|| BIN.into()),
            initrd: self.absolute("FIRECRACKER_INITRD"),
            work_directory: self
                .absolute("FIRECRACKER_WORK_DIR")
                .unwrap_or_else(|| WORK_DIR.into()),
            jailer: self.jailer(),
            kernel: kernel?,
            root_image: root_image?,
            root_directory: root_directory?,
        };
        Some(config)
    }

    fn jailer(&mut self) -> Option<JailerConfig> {
        if !self.has(JAILER) {
            self.refuse_without(JAILER, &OF_JAILER);
            return None;
        }
        let binary = self.needed_path(JAILER);
        let (uid, gid) =
            (self.needed_id("FIRECRACKER_JAILER_UID"), self.needed_id("FIRECRACKER_JAILER_GID"));
        let chroot_base = self.absolute("FIRECRACKER_JAILER_CHROOT_BASE");
        Some(JailerConfig {
            binary: binary?,
            uid: uid?,
            gid: gid?,
            chroot_base: chroot_base.unwrap_or_else(|| CHROOT_BASE.into()),
        })
    }

    fn has(&self, name: &str) -> bool {
        self.values.contains_key(OsStr::new(name))
    }

    /// Each of `names` that is set means that somebody takes what `main` asks for to be there.
    fn refuse_without(&mut self, main: &str, names: &[&str]) {
        for name in names {
            if self.has(name) {
                self.problems.push(format!("{name}: want {main} beside it, got none"));
            }
        }
    }

    fn absolute(&mut self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.values.get(OsStr::new(name))?);
        if path.is_absolute() {
            return Some(path);
        }
        self.problem(name, WANTED_PATH, &path.to_string_lossy());
        None
    }

    fn needed_path(&mut self, name: &str) -> Option<PathBuf> {
        if !self.has(name) {
            self.problems.push(format!("{name}: want {WANTED_PATH}, got none"));
        }
        self.absolute(name)
    }

    fn needed_id(&mut self, name: &str) -> Option<u32> {
        if !self.has(name) {
            self.problems.push(format!("{name}: want {WANTED_ID}, got none"));
        }
        self.figure(name, WANTED_ID, None, |text| {
            parse_decimal(text).filter(|id| (1..u32::MAX).contains(id)).map(Some)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Overrides};
    use super::*;

    const NEEDED: [(&str, &str); 3] = [
        (KERNEL, "/vm/vmlinux"),
        ("FIRECRACKER_ROOT_IMAGE", "/vm/root.ext4"),
        ("FIRECRACKER_ROOT_DIRECTORY", "/vm/root"),
    ];
    const JAILED: [(&str, &str); 3] = [
        (JAILER, "/usr/bin/jailer"),
        ("FIRECRACKER_JAILER_UID", "991"),
        ("FIRECRACKER_JAILER_GID", "992"),
    ];

    fn read(pairs: &[(&str, &str)]) -> Result<Option<FirecrackerConfig>, Vec<String>> {
        let environment = pairs.iter().map(|(name, value)| (name.into(), value.into()));
        let (config, problems) = Config::read(environment, &Overrides::default());
        problems.none_or(config.firecracker).map_err(|problems| problems.0)
    }

    fn least() -> FirecrackerConfig {
        FirecrackerConfig {
            firecracker: "/usr/bin/firecracker".into(),
            kernel: "/vm/vmlinux".into(),
            root_image: "/vm/root.ext4".into(),
            root_directory: "/vm/root".into(),
            initrd: None,
            work_directory: "/var/lib/cofferdam-firecracker".into(),
            jailer: None,
        }
    }

    #[test]
    fn the_kernel_is_what_asks_for_machines() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&NEEDED), Ok(Some(least())));
    }

    #[test]
    fn every_variable_of_firecracker_is_read() {
        let others = [
            ("FIRECRACKER_BIN", "/vm/firecracker"),
            ("FIRECRACKER_INITRD", "/vm/initrd"),
            ("FIRECRACKER_WORK_DIR", "/vm/work"),
            ("FIRECRACKER_JAILER_CHROOT_BASE", "/vm/jails"),
        ];
        let all = [&NEEDED[..], &JAILED, &others].concat();
        let mut names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        names.sort_unstable();
        assert_eq!(names, FIRECRACKER_NAMES);
        let jailer = JailerConfig {
            binary: "/usr/bin/jailer".into(),
            uid: 991,
            gid: 992,
            chroot_base: "/vm/jails".into(),
        };
        let expected = FirecrackerConfig {
            firecracker: "/vm/firecracker".into(),
            initrd: Some("/vm/initrd".into()),
            work_directory: "/vm/work".into(),
            jailer: Some(jailer.clone()),
            ..least()
        };
        assert_eq!(read(&all), Ok(Some(expected)));
        let usual = JailerConfig { chroot_base: "/srv/jailer".into(), ..jailer };
        let jailed = [&NEEDED[..], &JAILED].concat();
        assert_eq!(read(&jailed).unwrap().unwrap().jailer, Some(usual));
    }

    #[test]
    fn what_is_missing_is_told_by_name_and_all_of_it() {
        for (pairs, missing) in [
            (&NEEDED[..1], &["FIRECRACKER_ROOT_IMAGE", "FIRECRACKER_ROOT_DIRECTORY"][..]),
            (&NEEDED[..2], &["FIRECRACKER_ROOT_DIRECTORY"]),
            (&[NEEDED[0], NEEDED[2]], &["FIRECRACKER_ROOT_IMAGE"]),
            (
                &[&NEEDED[..], &JAILED[..1]].concat(),
                &["FIRECRACKER_JAILER_UID", "FIRECRACKER_JAILER_GID"],
            ),
            (&[&NEEDED[..], &JAILED[..2]].concat(), &["FIRECRACKER_JAILER_GID"]),
        ] {
            let problems = read(pairs).unwrap_err();
            assert_eq!(problems.len(), missing.len(), "{problems:?}");
            for (problem, name) in problems.iter().zip(missing) {
                assert!(problem.starts_with(&format!("{name}: want ")), "{problem}");
                assert!(problem.ends_with(", got none"), "{problem}");
            }
        }
    }

    #[test]
    fn what_means_nothing_without_another_is_refused() {
        for name in FIRECRACKER_NAMES.into_iter().filter(|name| *name != KERNEL) {
            let told = format!("{name}: want FIRECRACKER_KERNEL beside it, got none");
            assert_eq!(read(&[(name, "/vm/x")]), Err(vec![told]));
        }
        for name in OF_JAILER {
            let told = format!("{name}: want FIRECRACKER_JAILER beside it, got none");
            assert_eq!(read(&[&NEEDED[..], &[(name, "/vm/1")]].concat()), Err(vec![told]));
        }
    }

    #[test]
    fn malformed_values_refuse_the_start() {
        let ids = ["", "0", "-1", "+1", "root", "4294967295", "4294967296"];
        for name in FIRECRACKER_NAMES {
            let is_id = name.ends_with("ID");
            for value in if is_id { &ids[..] } else { &["", "vm/x", "./x", "~/x"] } {
                let all = [&NEEDED[..], &JAILED, &[(name, *value)]].concat();
                let problems = read(&all).unwrap_err();
                assert_eq!(problems.len(), 1, "{problems:?}");
                assert!(problems[0].starts_with(&format!("{name}: want a")), "{problems:?}");
            }
        }
    }
}
