//! Help texts and usage errors.

use std::process::Command;

use crate::support::cofferdam;

#[test]
fn every_level_has_help_with_examples() {
    let verbs = "describe create list show rm fork save snapshot ps signal restart put get ls stat mv del \
                 stage-dir stage collect run start attach poll log write kill close state result";
    let verbs = verbs.split(' ').map(|verb| format!("workspace {verb}"));
    let levels = ["", "serve", "run", "exec", "langs", "doctor", "workspace"].map(str::to_owned);
    for level in levels.into_iter().chain(verbs) {
        let done = cofferdam(&level).arg("--help").run().exits(0).quietly();
        let help = done.stdout();
        done.holds(help.contains("Usage: cofferdam") && help.contains("Examples:\n  "), "examples");
    }
    let version = concat!("cofferdam ", env!("CARGO_PKG_VERSION"), "\n");
    cofferdam("--version").run().exits(0).prints(version);
}

#[test]
fn help_names_every_option_of_the_contract() {
    let all = [
        ("serve", "--addr --workspace --langs --rootfs --store-dir"),
        ("run", "--lang --checker --asserts --timeout --workspace --langs --rootfs --json"),
        ("exec", "--timeout --cpu-time --memory --pids --cpus --disk --files --output"),
        ("exec", "--bind --tmpfs --workdir --env --profile --rootfs --report"),
        ("langs", "--json --workspace --langs --rootfs"),
        ("doctor", "--json --strict"),
    ];
    for (command, options) in all {
        let done = cofferdam(command).arg("--help").run();
        for option in options.split(' ') {
            let named = done.stdout().split_whitespace().any(|word| word == option);
            done.holds(named, option);
        }
    }
}

/// Without a terminal, it serves.
#[test]
fn no_command_at_a_terminal_is_a_usage_error_that_lists_the_commands() {
    const AT_A_TERMINAL: &str =
        "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
    let binary = env!("CARGO_BIN_EXE_cofferdam");
    let done = Command::new("python3").args(["-c", AT_A_TERMINAL, binary]).output().unwrap();
    let output = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(2), "{output}");
    assert!(output.contains("requires a subcommand"), "{output}");
    assert!(output.contains("serve, run, exec") && !output.contains("guest-init"), "{output}");
}

#[test]
fn no_list_of_commands_shows_the_hidden_one() {
    for arguments in ["--help", "frobnicate"] {
        let done = cofferdam(arguments).run();
        let output = done.stdout() + &done.stderr();
        done.holds(!output.contains("guest-init"), "no guest-init");
    }
}

#[test]
fn a_usage_error_is_one_line_that_names_the_option() {
    for (arguments, words) in [
        ("frobnicate", "frobnicate"),
        ("exec", "<CMD>"),
        ("exec true", "'true'"),
        ("exec --nope -- true", "--nope"),
        ("exec --timeout -- true", "--timeout"),
        ("exec --timeout soon -- true", "--timeout"),
        ("exec --cpu-time 1d -- true", "--cpu-time"),
        ("exec --memory lots -- true", "--memory"),
        ("exec --memory 0 -- true", "--memory"),
        ("exec --pids 0 -- true", "--pids"),
        ("exec --cpus 0 -- true", "--cpus"),
        ("exec --disk 1XB -- true", "--disk"),
        ("exec --files=-1 -- true", "--files"),
        ("exec --output many -- true", "--output"),
        ("exec --bind /tmp -- true", "--bind"),
        ("exec --bind /tmp:data -- true", "--bind"),
        ("exec --bind /tmp:/ -- true", "--bind"),
        ("exec --bind /no/such/source:/data -- true", "--bind: /no/such/source: no such file"),
        ("exec --bind /tmp:/proc/sys -- true", "--bind"),
        ("exec --tmpfs / -- true", "--tmpfs"),
        ("exec --tmpfs /dev -- true", "--tmpfs"),
        ("exec --tmpfs /x:none -- true", "--tmpfs"),
        ("exec --env NAME -- true", "--env"),
        ("exec --workdir here -- true", "--workdir"),
        (
            "exec --profile none -- true",
            "--profile: no profile is called \"none\"; want one of default",
        ),
        ("exec --rootfs /no/such/root -- true", "--rootfs: /no/such/root"),
        ("exec --rootfs /etc/passwd -- true", "--rootfs: /etc/passwd: not a directory"),
        ("exec --report /no/such/dir/r -- true", "--report: /no/such/dir/r"),
        ("run", "<FILE>"),
        ("run --lang python /no/such/file", "FILE: /no/such/file: no such file"),
        ("run --lang python --checker /no/such/file /etc/passwd", "--checker: /no/such/file"),
        ("run --lang python --asserts /no/such/file /etc/passwd", "--asserts: /no/such/file"),
        ("run --lang python --timeout 1y /etc/passwd", "--timeout"),
        ("run --lang python --langs /no/such/dir /etc/passwd", "--langs: /no/such/dir"),
        ("langs --workspace /no/such/dir", "--workspace: /no/such/dir"),
        ("langs --workspace / --langs /", "--langs"),
        ("serve --addr nowhere", "--addr"),
        ("serve --workspace /no/such/dir", "--workspace: /no/such/dir"),
    ] {
        cofferdam(arguments).run().exits(2).prints("").complains(words);
    }
}
