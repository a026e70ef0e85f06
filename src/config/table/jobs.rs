//! The variables of agents' jobs and of their virtual machines.

use super::egress::HOSTS_WANTED;
use super::variable::DefaultValue::{InWords, Value};
use super::variable::{Variable, VariableGroup, group};

group! {
    /// Whether there are jobs, how many and where.
    JOBS_OF_AGENTS: "Jobs", "";

    JOBS {
        default: Value("on"),
        wanted: "on or off",
        meaning: "`off` disables `/v1/jobs`.",
    }
    JOBS_WORKERS {
        default: InWords("one per CPU"),
        example: "4",
        wanted: "a whole number from 1 to 4096",
        meaning: "Jobs that run at once.",
    }
    JOBS_QUEUE_MAX {
        default: Value("64"),
        wanted: "a whole number from 1 to 100000",
        meaning: "Jobs that wait; one more is a 503.",
    }
    JOBS_STORE_DIR {
        default: Value("./agent-runner-runs"),
        example: "/var/lib/cofferdam/jobs",
        wanted: "a directory",
        meaning: "Where the records of jobs are (`--store-dir`).",
    }
    JOBS_WORKSPACE_ROOTS {
        default: InWords("any if the service listens on the loopback, else none"),
        example: "/srv/workspaces",
        wanted: "absolute directories divided by colons",
        meaning: "Directories, separated by colons, that the workspaces of jobs may be in.",
    }
    JOBS_ALLOWED_ENV {
        example: "LANG",
        wanted: "names divided by commas or spaces",
        meaning: "Names of variables that any job may set.",
    }
    JOBS_NETWORK_HOSTS {
        example: "pypi.org,files.pythonhosted.org",
        wanted: HOSTS_WANTED,
        meaning: "Hosts that the programs of jobs may ask to reach, divided by commas.",
        details: "Entries as `policy.network` has them, see [docs/egress.md](egress.md).",
    }
    JOBS_HOSTS_ALLOW {
        example: "10.1.2.3:8080",
        wanted: HOSTS_WANTED,
        meaning: "Hosts among them whose address need not be public.",
    }
    JOBS_FOLLOWERS_MAX {
        default: Value("64"),
        wanted: "a whole number from 1",
        meaning: "Event streams of jobs at once, at most half of the connections; one more is a 503.",
    }
    JOBS_INPUT_MAX {
        default: Value("1048576"),
        wanted: "a byte count above 0, as 512MiB",
        meaning: "Bytes of a job's request.",
    }
    JOBS_RETENTION {
        default: InWords("for ever"),
        example: "168h",
        wanted: "a duration above zero, as 90m or 168h",
        meaning: "How long records of ended jobs are kept, as `168h`.",
    }
    JOBS_STORE_MAX {
        default: InWords("no limit"),
        example: "10GiB",
        wanted: "a byte count above 0, as 512MiB",
        meaning: "Bytes of the records of ended jobs; the oldest are removed first.",
        details: "Enforced as each job ends.",
    }
}

group! {
    /// The largest limits that a request may name: an hour of wall-clock time, four of CPU time,
    /// and four times the default of every other limit.
    JOB_MAXIMA: "Limits of jobs", "The largest limits that a job may request.";

    JOBS_MAX_TIMEOUT_MS {
        default: Value("1h"),
        wanted: "milliseconds, or a duration as 90s or 1h, from 1",
        meaning: "Wall-clock time of the program, in milliseconds or as a duration.",
    }
    JOBS_MAX_CPU_TIME_MS {
        default: Value("4h"),
        wanted: "milliseconds, or a duration as 90s or 1h, from 1",
        meaning: "CPU time of the program, in milliseconds or as a duration.",
    }
    JOBS_MAX_MEMORY_BYTES {
        default: Value("2GiB"),
        wanted: "a byte count, as 512MiB, from 1",
        meaning: "Memory.",
    }
    JOBS_MAX_PROCESSES {
        default: Value("1024"),
        wanted: "a whole number from 1",
        meaning: "Processes and threads.",
    }
    JOBS_MAX_DISK_BYTES {
        default: Value("1GiB"),
        wanted: "a byte count, as 512MiB, from 0",
        meaning: "What it may write.",
    }
    JOBS_MAX_STDOUT_BYTES {
        default: Value("4MiB"),
        wanted: "a byte count, as 512MiB, from 0",
        meaning: "How much of its stdout is kept.",
    }
    JOBS_MAX_STDERR_BYTES {
        default: Value("4MiB"),
        wanted: "a byte count, as 512MiB, from 0",
        meaning: "How much of its stderr is kept.",
    }
    JOBS_MAX_ARTIFACT_COUNT {
        default: Value("400"),
        wanted: "a whole number from 0",
        meaning: "Artifacts that are kept.",
    }
    JOBS_MAX_ARTIFACT_FILE_BYTES {
        default: Value("16MiB"),
        wanted: "a byte count, as 512MiB, from 0",
        meaning: "How much of each artifact is kept.",
    }
    JOBS_MAX_ARTIFACT_TOTAL_BYTES {
        default: Value("256MiB"),
        wanted: "a byte count, as 512MiB, from 0",
        meaning: "How much of all artifacts is kept.",
    }
    JOBS_MAX_RECORD_BYTES {
        default: Value("16MiB"),
        wanted: "a byte count, as 512MiB, from 65536",
        meaning: "The result as JSON.",
    }
    JOBS_MAX_SNAPSHOT_FILES {
        default: Value("400000"),
        wanted: "a whole number from 0",
        meaning: "Files of its workspace, and as many directories.",
    }
    JOBS_MAX_SNAPSHOT_BYTES {
        default: Value("4GiB"),
        wanted: "a byte count, as 512MiB, from 0",
        meaning: "Contents of those files.",
    }
}

group! {
    /// Where the parts of virtual machines are.
    FIRECRACKER: "Firecracker", "Jobs may request the backend `firecracker`, a virtual machine, if `FIRECRACKER_KERNEL` is set. All paths are
absolute. [docs/firecracker.md](firecracker.md) says what the systemd unit then needs.";

    FIRECRACKER_KERNEL {
        example: "/usr/local/share/cofferdam/vm/vmlinux",
        wanted: "an absolute path",
        meaning: "Kernel of the guests.",
    }
    FIRECRACKER_ROOT_IMAGE {
        example: "/usr/local/share/cofferdam/vm/root.ext4",
        wanted: "an absolute path",
        meaning: "Root file system of the guests; needed with the kernel.",
    }
    FIRECRACKER_ROOT_DIRECTORY {
        example: "/usr/local/share/cofferdam/vm/root",
        wanted: "an absolute path",
        meaning: "A directory with the content of that image; needed with the kernel.",
    }
    FIRECRACKER_BIN {
        default: Value("/usr/bin/firecracker"),
        wanted: "an absolute path",
        meaning: "Binary of Firecracker.",
    }
    FIRECRACKER_INITRD {
        example: "/usr/local/share/cofferdam/vm/initrd",
        wanted: "an absolute path",
        meaning: "An initramfs, if the image lacks the guest's first program.",
    }
    FIRECRACKER_WORK_DIR {
        default: Value("/var/lib/cofferdam-firecracker"),
        wanted: "an absolute path",
        meaning: "Where the drives of jobs are while the jobs run.",
        details: "Created with mode 0700, used by one process at a time, visible in no sandbox.",
    }
    FIRECRACKER_JAILER {
        example: "/usr/bin/jailer",
        wanted: "an absolute path",
        meaning: "Binary of the jailer; without it Firecracker runs as the service does.",
    }
    FIRECRACKER_JAILER_UID {
        example: "991",
        wanted: "a whole number from 1 to 4294967294",
        meaning: "User that Firecracker becomes, not root; needed with the jailer.",
    }
    FIRECRACKER_JAILER_GID {
        example: "991",
        wanted: "a whole number from 1 to 4294967294",
        meaning: "Group that Firecracker becomes, not root's; needed with the jailer.",
    }
    FIRECRACKER_JAILER_CHROOT_BASE {
        default: Value("/srv/jailer"),
        wanted: "an absolute path",
        meaning: "Where jails are made.",
    }
}
