//! The configuration of the backend `firecracker`.

use std::path::PathBuf;

use super::parse::parse_decimal;
use super::reader::VariableReader;
use super::table::{self, Variable};

/// They have no effect without a jailer.
const OF_JAILER: [&Variable; 3] = [
    &table::FIRECRACKER_JAILER_CHROOT_BASE,
    &table::FIRECRACKER_JAILER_GID,
    &table::FIRECRACKER_JAILER_UID,
];

/// Where the parts of virtual machines are. Every path is absolute; none is known to exist.
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
    /// Where the drives of jobs are while they run.
    pub work_directory: PathBuf,
    /// What confines Firecracker; without it Firecracker runs as the service does.
    pub jailer: Option<JailerConfig>,
}

/// How Firecracker is confined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JailerConfig {
    /// The jailer's binary.
    pub binary: PathBuf,
    /// The user that Firecracker becomes, not root.
    pub uid: u32,
    /// The group that Firecracker becomes, not root's.
    pub gid: u32,
    /// Where jails are made.
    pub chroot_base: PathBuf,
}

impl FirecrackerConfig {
    /// The backend is configured if its kernel is.
    pub(super) fn read(reader: &mut VariableReader) -> Option<Self> {
        if reader.raw(&table::FIRECRACKER_KERNEL).is_none() {
            reader.refuse_without(&table::FIRECRACKER_KERNEL, table::FIRECRACKER.variables);
            return None;
        }
        // All are read in any case, to find every problem.
        let kernel = reader.required_absolute(&table::FIRECRACKER_KERNEL);
        let root_image = reader.required_absolute(&table::FIRECRACKER_ROOT_IMAGE);
        let root_directory = reader.required_absolute(&table::FIRECRACKER_ROOT_DIRECTORY);
        let firecracker = reader.absolute(&table::FIRECRACKER_BIN);
        let initrd = reader.absolute(&table::FIRECRACKER_INITRD);
        let work_directory = reader.absolute(&table::FIRECRACKER_WORK_DIR);
        let jailer = JailerConfig::read(reader);
        Some(Self {
            firecracker: firecracker?,
            kernel: kernel?,
            root_image: root_image?,
            root_directory: root_directory?,
            initrd,
            work_directory: work_directory?,
            jailer,
        })
    }
}

impl JailerConfig {
    fn read(reader: &mut VariableReader) -> Option<Self> {
        if reader.raw(&table::FIRECRACKER_JAILER).is_none() {
            reader.refuse_without(&table::FIRECRACKER_JAILER, OF_JAILER);
            return None;
        }
        let binary = reader.required_absolute(&table::FIRECRACKER_JAILER);
        let uid = reader.required(&table::FIRECRACKER_JAILER_UID, parse_id);
        let gid = reader.required(&table::FIRECRACKER_JAILER_GID, parse_id);
        let chroot_base = reader.absolute(&table::FIRECRACKER_JAILER_CHROOT_BASE);
        Some(Self { binary: binary?, uid: uid?, gid: gid?, chroot_base: chroot_base? })
    }
}

/// An id of a user or a group, not root's: as root a jail would confine nothing.
fn parse_id(text: &str) -> Option<u32> {
    parse_decimal(text).filter(|id| (1..u32::MAX).contains(id))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{Config, Overrides};
    use super::*;

    const KERNEL: &str = table::FIRECRACKER_KERNEL.name;

    const NEEDED: [(&str, &str); 3] = [
        (KERNEL, "/vm/vmlinux"),
        ("FIRECRACKER_ROOT_IMAGE", "/vm/root.ext4"),
        ("FIRECRACKER_ROOT_DIRECTORY", "/vm/root"),
    ];
    const JAILED: [(&str, &str); 3] = [
        ("FIRECRACKER_JAILER", "/usr/bin/jailer"),
        ("FIRECRACKER_JAILER_UID", "991"),
        ("FIRECRACKER_JAILER_GID", "992"),
    ];

    fn names() -> impl Iterator<Item = &'static str> {
        table::FIRECRACKER.variables.iter().map(|variable| variable.name)
    }

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
    fn the_kernel_enables_the_backend() {
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
        let read_here: BTreeSet<&str> = all.iter().map(|(name, _)| *name).collect();
        assert_eq!(read_here, names().collect());
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
    fn every_missing_variable_is_reported_by_name() {
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
    fn a_variable_without_the_one_it_depends_on_is_refused() {
        for name in names().filter(|name| *name != KERNEL) {
            let told = format!("{name}: want FIRECRACKER_KERNEL beside it, got none");
            assert_eq!(read(&[(name, "/vm/x")]), Err(vec![told]));
        }
        for name in OF_JAILER.map(|variable| variable.name) {
            let told = format!("{name}: want FIRECRACKER_JAILER beside it, got none");
            assert_eq!(read(&[&NEEDED[..], &[(name, "/vm/1")]].concat()), Err(vec![told]));
        }
    }

    #[test]
    fn malformed_values_refuse_the_start() {
        let ids = ["", "0", "-1", "+1", "root", "4294967295", "4294967296"];
        for name in names() {
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
