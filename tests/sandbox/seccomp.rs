//! The answer to every system call in a sandbox, under each profile for programs. Each call is made
//! for real, with harmless arguments.
//!
//! The same calls are made in a sandbox whose filter allows everything. An allowed call is
//! recognised by the same answer as there, a refused one by another answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use cofferdam_core::Outcome;
use cofferdam_test_support::{self as support, Host, Program};
use nix::errno::Errno;
use tempfile::TempDir;

use cofferdam_fixtures::answers::{PROFILES, Row, rows};
use cofferdam_sandbox::engine::builtin_profile;

/// The column of this machine's call numbers.
const ARCH: usize = if cfg!(target_arch = "x86_64") { 0 } else { 1 };
/// Calls that the settings of a host (`kernel.io_uring_disabled` and the like) can refuse with the
/// same error as the profile.
const SETTINGS_MAX: usize = 8;

/// One call.
#[derive(Debug, Clone, Copy)]
struct Call {
    how: char,
    number: u32,
    args: [u64; 6],
}

impl Call {
    fn plain(number: u32) -> Self {
        Self { how: 'c', number, args: [u64::MAX; 6] }
    }

    fn all_of(row: &Row) -> Vec<Self> {
        let how = match row.how {
            how if how.forks => 't',
            how if how.waits => 'w',
            _ => 'c',
        };
        let number = row.numbers[ARCH].unwrap();
        row.args.iter().map(|args| Self { how, number, args: *args }).collect()
    }
}

/// The compiled program that makes the calls.
#[derive(Debug)]
struct Probe {
    directory: TempDir,
}

impl Probe {
    fn compile() -> Self {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sandbox/seccomp/probe.c");
        let output = Command::new("gcc")
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(directory.path().join("probe"))
            .arg(source)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { directory }
    }

    /// The answer to each of `calls` in sandboxes of `host`: `done`, an error, or the end of the
    /// process that made it, after which the next sandbox continues.
    fn answers(&self, host: &Host, calls: &[Call]) -> Vec<String> {
        let mut answers = Vec::new();
        while answers.len() < calls.len() {
            let list: String = calls.iter().enumerate().skip(answers.len()).map(line).collect();
            let program = Program::new(&["/probe/probe", "/workspace/calls"])
                .file("calls", list.as_bytes())
                .bind(self.directory.path(), "/probe", true)
                .limits(|limits| *limits = limits.clone().with_wall(Duration::from_secs(60)));
            let report = host.run(program);
            let text = report.stdout.text();
            for line in text.lines() {
                let (index, number) = line.split_once(' ').unwrap();
                assert_eq!(index.parse(), Ok(answers.len()), "{line}");
                answers.push(match number.parse().unwrap() {
                    0 => "done".to_owned(),
                    number => format!("{:?}", Errno::from_raw(number)),
                });
            }
            if answers.len() < calls.len() {
                let call = calls[answers.len()];
                answers.push(match report.outcome {
                    Outcome::Exited { code } => format!("exited {code}"),
                    Outcome::Signaled { signal } => format!("signal {signal}"),
                    other => panic!("{call:x?}: {other:?}: {}", report.stderr.text()),
                });
            }
        }
        answers
    }
}

fn line((index, call): (usize, &Call)) -> String {
    let [a, b, c, d, e, f] = call.args;
    format!("{index} {} {} {a:x} {b:x} {c:x} {d:x} {e:x} {f:x}\n", call.how, call.number)
}

fn host_under(profile: &str) -> Option<Host> {
    support::host_with(|config| config.profile = builtin_profile(profile).unwrap())
}

/// A row of the table and the answers to its calls without a filter.
#[derive(Debug)]
struct Asked {
    row: Row,
    /// Empty if the calls must not be allowed even once.
    own: Vec<String>,
}

fn asked_without_filter(probe: &Probe, host: &Host) -> Vec<Asked> {
    let here = rows().into_iter().filter(|row| row.numbers[ARCH].is_some() && !row.how.unfiltered);
    let (costly, mut harmless): (Vec<Row>, Vec<Row>) = here.partition(|row| row.how.costly);
    // While the process has one thread. With more, the last to end sets the exit code.
    harmless.sort_by_key(|row| !row.how.ends);
    let calls: Vec<Call> = harmless.iter().flat_map(Call::all_of).collect();
    let mut answers = probe.answers(host, &calls).into_iter();
    let mut asked: Vec<Asked> = harmless
        .into_iter()
        .map(|row| {
            let own: Vec<String> = answers.by_ref().take(row.args.len()).collect();
            let ends = own.iter().all(|answer| answer.contains(' '));
            assert_eq!(row.how.ends, ends, "line {}: {own:?}", row.line);
            Asked { row, own }
        })
        .collect();
    asked.extend(costly.into_iter().map(|row| Asked { row, own: Vec::new() }));
    asked
}

#[test]
fn every_call_is_answered_as_the_table_says() {
    let Some(open) = support::host_without_filter() else { return };
    let probe = Probe::compile();
    let asked = asked_without_filter(&probe, &open);
    let (mut wrong, mut alike) = (Vec::new(), BTreeSet::new());
    for (column, profile) in PROFILES.into_iter().enumerate() {
        let Some(host) = host_under(profile) else { return };
        let calls: Vec<Call> = asked.iter().flat_map(|asked| Call::all_of(&asked.row)).collect();
        assert!(calls.len() > 1000, "{}", calls.len());
        let mut answers = probe.answers(&host, &calls).into_iter();
        let refusals = refusals(&asked, column);
        for Asked { row, own } in &asked {
            let want = row.answers[column].as_str();
            let refusals = &refusals[row.call.as_str()];
            for (index, args) in row.args.iter().enumerate() {
                let answer = answers.next().unwrap();
                let own = own.get(index).map_or("never asked", String::as_str);
                let expected = if want == "allow" { own } else { want };
                let place = format!("line {}: {} {args:x?}", row.line, row.call);
                if answer != expected {
                    wrong.push(format!("{profile}, {place}: {answer}, want {expected}"));
                }
                let told_apart =
                    if want == "allow" { !refusals.contains(own) } else { own != want };
                // A kernel without the call never executes it.
                if !told_apart && !row.how.same && own != "ENOSYS" {
                    alike.insert(format!("{place}: {own}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(alike.len() <= SETTINGS_MAX, "the same either way: {alike:#?}");
}

/// The errors with which each call can be refused under the profile of `column`: those of its rows,
/// and the two that refuse most calls.
fn refusals(asked: &[Asked], column: usize) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut refusals = BTreeMap::<&str, BTreeSet<&str>>::new();
    for Asked { row, .. } in asked {
        let of_call = refusals.entry(&row.call).or_insert_with(|| ["ENOSYS", "EPERM"].into());
        of_call.insert(&row.answers[column]);
    }
    refusals
}

#[test]
fn unknown_and_x32_call_numbers_do_not_exist() {
    let probe = Probe::compile();
    let known: Vec<u32> = rows().iter().filter_map(|row| row.numbers[ARCH]).collect();
    let last = known.iter().max().unwrap();
    let beyond = last + 1..=last + 256;
    let far = [0x3fff_ffff, i32::MAX.unsigned_abs(), 1 << 31, u32::MAX];
    let x32 = (0..=last + 256).map(|number| 0x4000_0000 | number);
    let calls: Vec<Call> = beyond.chain(far).chain(x32).map(Call::plain).collect();
    for profile in PROFILES {
        let Some(host) = host_under(profile) else { return };
        let answers = probe.answers(&host, &calls);
        let executed: Vec<_> =
            calls.iter().zip(&answers).filter(|(_, answer)| *answer != "ENOSYS").collect();
        assert!(executed.is_empty(), "under {profile}: {executed:x?}");
    }
}

/// `socketcall` has the number 102 on i386, `getuid` on x86-64: a filter that checks only numbers
/// confuses them.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_call_of_the_i386_table_ends_the_process() {
    let Some(open) = support::host_without_filter() else { return };
    let probe = Probe::compile();
    // getpid, socketcall, open, mount, unshare, access.
    let calls = [20, 102, 5, 21, 310, 33].map(|number| Call { how: 'i', number, args: [0; 6] });
    // A kernel without that table ends the process itself.
    let own = probe.answers(&open, &calls[..1]);
    let want = if own[0] == "done" { format!("signal {}", libc::SIGSYS) } else { own[0].clone() };
    assert!(want.starts_with("signal "), "{want}");
    for profile in PROFILES {
        let Some(host) = host_under(profile) else { return };
        let answers = probe.answers(&host, &calls);
        assert!(answers.iter().all(|answer| *answer == want), "under {profile}: {answers:?}");
    }
}
