//! Runs whose runtime was started ahead of them answer as those that start their own.

use std::time::Duration;

use cofferdam_test_server::client::{Answer, Finished};
use cofferdam_test_server::service::{Service, wait_until};
use cofferdam_test_server::shipped::{self, Language, repository};
use cofferdam_test_server::vector::{Vector, names};
use serde_json::{Value, json};

/// How long a runtime may take to get ready on a loaded machine, where it gives way to all else: one that is
/// not ready after 30 seconds is tried again a minute later.
const PATIENCE: Duration = Duration::from_secs(240);

/// The vectors of the short form (`WARM_VECTORS=common`), of each language that has them. All others
/// run without that variable.
const COMMON: [&str; 6] = ["good", "wrong", "prints", "runtime_error", "exit", "platform"];

/// Whether the vector `name` is asked for.
fn is_asked_for(name: &str) -> bool {
    match std::env::var("WARM_VECTORS").as_deref() {
        Ok("common") => COMMON.contains(&name),
        Ok(other) if other != "all" => panic!("WARM_VECTORS is common or all, not {other}"),
        _ => true,
    }
}

/// The languages that are here, of `LANGUAGES` where that is set, whose workspace has a target
/// `prestart`. One that begins with what `make warm` left in its root file system needs such a root.
fn prestarting(service: &Service) -> Vec<(String, Language)> {
    let has_target = |slug: &str| {
        let makefile = repository().join("langs").join(slug).join("Makefile");
        let makefile = std::fs::read_to_string(makefile).unwrap();
        let Some((_, recipe)) = makefile.split_once("\nprestart:") else { return false };
        let recipe: Vec<&str> =
            recipe.lines().skip(1).take_while(|line| line.starts_with('\t')).collect();
        let is_warmed = shipped::rootfs().is_some() || !recipe.concat().contains("$(CACHE)");
        if !is_warmed {
            println!("{slug} is started ahead only where it was warmed: make test-langs");
        }
        is_warmed
    };
    let named = std::env::var("LANGUAGES").ok();
    assert_ne!(named.as_deref(), Some(""), "LANGUAGES is empty");
    let is_named =
        |slug: &str| named.as_ref().is_none_or(|all| all.split(' ').any(|one| one == slug));
    let available = shipped::available(service).into_iter();
    available.filter(|(slug, _)| is_named(slug) && has_target(slug)).collect()
}

fn value(service: &Service, line_start: &str) -> f64 {
    let metrics = service.get("/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(line_start));
    line.map_or(0.0, |value| value.trim().parse().unwrap())
}

/// Posts `body` once a runtime of `slug` waits, and checks that it was used.
fn post_warm(service: &Service, slug: &str, body: &Value) -> Answer {
    let ready = format!("cofferdam_prestart_boxes_ready{{language=\"{slug}\"}} ");
    wait_until(&format!("a runtime of {slug}"), PATIENCE, || value(service, &ready) >= 1.0);
    let used = || value(service, "cofferdam_prestart_boxes_used_total ");
    let before = used();
    let answer = service.post(body);
    assert!(used() > before, "{slug}: {answer:?}");
    answer
}

/// What was printed, without times. The order of keys is random in some languages.
fn without_times(text: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| {
        let mut items = serde_json::from_str(line).unwrap_or_else(|_| Value::from(line));
        let one = items.as_array_mut().map_or(&mut [][..], |items| items);
        one.iter_mut().for_each(|item| drop(item.as_object_mut().map(|item| item.remove("time"))));
        drop(items.as_object_mut().map(|item| item.remove("time")));
        items
    });
    lines.collect()
}

/// `text` without what differs from start to start: the numbers by which a JVM tells objects apart, such as `f@4fa06f52`
/// and `0x4fa06f52`, and those of Erlang's processes, such as `<0.92.0>`.
fn without_identities(text: &str) -> String {
    let parts = text.split_inclusive("0x").flat_map(|part| part.split_inclusive('@'));
    let mut parts = parts.flat_map(|part| part.split_inclusive("<0."));
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.trim_start_matches(|c: char| c.is_ascii_hexdigit()))
}

/// A log without its times.
fn without_log_times(text: &str) -> String {
    text.split_inclusive([' ', '\n']).filter(|word| !is_time(word)).collect()
}

/// A backtrace of Swift without its time and the numbers of its calls: how deep an endless recursion gets
/// depends on where the kernel put the stack.
fn without_depths(text: &str) -> String {
    let lines = text.split_inclusive('\n').filter(|line| !line.starts_with("Backtrace took "));
    let mut all = String::new();
    for line in lines {
        let call = line.trim_start_matches(|c: char| c.is_ascii_digit());
        all.push_str(if call.starts_with(" [ra]") { call } else { line });
    }
    all
}

/// Whether `word` is a time, such as `06:23:52.323` and `29-Nov-2026::06:22:50.926887`.
fn is_time(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) && word.matches(':').count() >= 2
}

type Seen = (Option<u8>, Vec<Value>, String, Option<String>);

fn seen(answer: &Answer) -> Seen {
    let Finished { exit_code, stdout, stderr } = answer.finished();
    let outcome = answer.header("x-run-outcome").map(str::to_owned);
    // In which call a stack ends follows what a JVM has compiled by then, which differs from run to run.
    let stderr = match stderr.split_once("StackOverflowError\n\tat ") {
        Some((before, _)) => before.to_owned(),
        None => stderr,
    };
    let stderr = without_identities(&without_log_times(&without_depths(&stderr)));
    (exit_code, without_times(&without_identities(&stdout)), stderr, outcome)
}

#[test]
fn runs_in_runtimes_started_ahead_answer_as_all_others() {
    let cold = shipped::setup().env("PRESTART", "off").start();
    let warm = shipped::setup().env("STANDBY_MAX", "1").start();
    for (slug, language) in prestarting(&warm) {
        let good = Vector::read(&slug, "good").request(&slug, &language);
        warm.post(&good);
        let mut compared = 0;
        for name in names(&slug).into_iter().filter(|name| is_asked_for(name)) {
            let vector = Vector::read(&slug, &name);
            if vector.needs_recipe() && shipped::rootfs().is_none() {
                continue;
            }
            let body = vector.request(&slug, &language);
            let (own, ahead) = (cold.post(&body), post_warm(&warm, &slug, &body));
            assert_eq!(seen(&ahead), seen(&own), "{slug}/{name}");
            compared += 1;
        }
        assert!(compared > 0, "{slug}: no vector was compared");
        println!("{slug}: {compared} vectors, warm and cold");
    }
}

/// What a program can see of its start.
const PYTHON: &str = r"
import os, stat, sys, signal
def solution(a, b):
    return [
        sys.argv, sys.orig_argv, sys.path, sys.flags.hash_randomization, os.getcwd(), os.umask(0o22),
        sorted(os.environ.items()), sorted(os.listdir('/proc/self/fd')), os.readlink('/proc/self/fd/0'),
        stat.S_ISCHR(os.fstat(0).st_mode), sys.stdin.read(), sorted(sys.modules), __name__,
        [str(signal.getsignal(s)) for s in (2, 13, 15)], sorted(os.listdir('.')), sorted(os.listdir('/tmp')),
        sys.get_int_max_str_digits(), os.sched_getaffinity(0) != set(), os.nice(0),
    ]
";

const JS: &str = r"
const fs = require('fs');
const solution = () => [
  process.argv, process.execArgv, process.cwd(), process.umask(), Object.entries(process.env).sort(),
  fs.readdirSync('/tmp'), fs.readdirSync('.'), fs.readlinkSync('/proc/self/fd/0'), fs.readFileSync(0, 'utf8'),
  Object.keys(require.cache).sort(), require.main.filename, Object.keys(globalThis), process.title,
  fs.readdirSync('/proc/self/fd').length,
];
module.exports = solution;
";

const RUBY: &str = r"
def solution(a, b)
  [
    ARGV, $0, Dir.pwd, File.umask, ENV.to_a.sort, Dir.children('/tmp').sort, Dir.children('.').sort,
    File.readlink('/proc/self/fd/0'), $stdin.read, Dir.children('/proc/self/fd').size, $LOADED_FEATURES.sort,
    global_variables.sort, Object.constants.sort, Thread.list.size, Signal.list.keys.sort, $PROGRAM_NAME,
  ]
end
";

/// Its standard input is the pipe that the run began with, which has ended.
const PHP: &str = r"<?php
function solution($a, $b) {
    return [
        $_SERVER['argv'], getcwd(), umask(), getenv(), scandir('/tmp'), scandir('.'),
        stream_get_contents(STDIN), count(scandir('/proc/self/fd')), get_included_files(), ini_get_all(null, false),
        get_defined_functions()['user'], get_declared_classes(), array_keys($GLOBALS), ob_get_level(),
        array_keys(get_resources()),
    ];
}
";

#[test]
fn a_program_sees_no_other_start_in_a_runtime_started_ahead() {
    let cold = shipped::setup().env("PRESTART", "off").start();
    let warm = shipped::setup().env("STANDBY_MAX", "1").start();
    let languages = prestarting(&warm);
    for (slug, solution) in [("python", PYTHON), ("js", JS), ("ruby", RUBY), ("php", PHP)] {
        if !languages.iter().any(|(known, _)| known == slug) {
            println!("{slug} is not here");
            continue;
        }
        let body = json!({ "lang_slug": slug, "solution_text": solution, "asserts": r#"{"arguments":[[1,2]]}"# });
        warm.post(&body);
        let (own, ahead) = (cold.post(&body), post_warm(&warm, slug, &body));
        assert!(own.stdout().contains("printed"), "{own:?}");
        assert_eq!(seen(&ahead), seen(&own), "{slug}");
    }
}

#[test]
fn no_two_runtimes_started_ahead_share_their_random_state() {
    const LOOK: &str = "import random, os\ndef solution(a, b):\n    return [id(type(object)), id(os), hash('x'), \
                        random.random(), open('/proc/self/maps').read().split('-')[0]]\n";
    let warm = shipped::setup().env("STANDBY_MAX", "2").start();
    if !prestarting(&warm).iter().any(|(slug, _)| slug == "python") {
        println!("python is not here");
        return;
    }
    let body = json!({ "lang_slug": "python", "solution_text": LOOK, "asserts": r#"{"arguments":[[1,2]]}"# });
    warm.post(&body);
    let looks: Vec<Vec<Value>> = (0..4)
        .map(|_| {
            let stdout = post_warm(&warm, "python", &body).stdout();
            let items: Value = serde_json::from_str(&stdout).unwrap();
            items[0]["value"].as_array().unwrap().clone()
        })
        .collect();
    for index in 1..4 {
        let mut values: Vec<String> = looks.iter().map(|look| look[index].to_string()).collect();
        values.sort();
        values.dedup();
        assert_eq!(values.len(), looks.len(), "{index}: {looks:?}");
    }
}
