//! What an agent leaves for the graders of its Case to find.

use std::time::Duration;

use cofferdam_test_server::service::wait_until;
use serde_json::json;

use super::scene::{CaseScene, MENDS, TEST, assert_lost};
use crate::Unexercised;
use crate::marker::Marker;
use crate::target::Target;

/// How long a step of a run may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// A report of a test that passed.
const REPORT: &str =
    "<testsuite tests=\"1\" failures=\"0\"><testcase classname=\"a\" name=\"b\"/></testsuite>";
/// Ends every Python that imports it.
const EXIT: &str = "import os; os._exit(0)";
/// Writes a report of what it has found.
const CHECK: &str = "import mod\n\nfault = '' if mod.VALUE == 42 else '<failure/>'\n\
                     for name in ['report.xml', 'reports/TEST-a.xml']:\n    \
                     open(name, 'w').write(f'<testsuite><testcase name=\"value\">{fault}</testcase></testsuite>')\n";

pub fn planted_reports(target: &Target) -> Result<(), Unexercised> {
    let files = [("tests/check.py", CHECK), ("src/reports/keep", "")];
    let inject = json!([{"src": "tests/check.py", "dest": "check.py"}]);
    let tests = |report: &str| json!({"type": "tests", "cmd": "python3 check.py", "inject": inject, "junit_xml": [report]});
    let blocks = json!({"graders": [tests("report.xml"), tests("reports/*.xml")]});
    let scene = CaseScene::new(target, &files, blocks)?;
    let plant =
        format!("echo '{EXIT}' > mod.py; echo '{REPORT}' | tee report.xml > reports/TEST-a.xml");
    let linked = format!(
        "echo '{EXIT}' > mod.py; echo '{REPORT}' > kept; ln -s kept report.xml; ln -s ../kept reports/TEST-b.xml"
    );
    scene.wins_nothing(MENDS, &[("plants", &plant), ("links", &linked)]);
    Ok(())
}

pub fn files_of_tests(target: &Target) -> Result<(), Unexercised> {
    let run = "python3 -m unittest -q test_mod checks.test_deep 2>&1\n";
    let files = [
        ("tests/test_mod.py", TEST),
        ("tests/test_deep.py", TEST),
        ("src/checks/__init__.py", ""),
        ("src/scripts/run.sh", run),
    ];
    let inject = json!([
        {"src": "tests/test_mod.py", "dest": "test_mod.py"},
        {"src": "tests/test_deep.py", "dest": "checks/test_deep.py"},
    ]);
    let blocks = json!({
        "protect": ["scripts/**"],
        "graders": [{"type": "tests", "cmd": "sh scripts/run.sh", "inject": inject, "expect_total": 2}],
    });
    let scene = CaseScene::new(target, &files, blocks)?;
    let passes = "printf 'import unittest\\nclass T(unittest.TestCase):\\n  def test(self): pass\\n' > good.py";
    let own = format!("{passes}; cp good.py test_mod.py; cp good.py checks/test_deep.py");
    let links =
        format!("{passes}; ln -s good.py test_mod.py; ln -s ../good.py checks/test_deep.py");
    let above = format!(
        "{passes}; mkdir test_mod.py; mkdir other; touch other/__init__.py; cp good.py other/test_deep.py\n\
         rm -r checks; ln -s other checks"
    );
    let script = "echo 'echo \"Ran 2 tests in 0.1s\"; echo; echo OK' > scripts/run.sh";
    let starts = "mkdir unittest; printf 'print(\"Ran 2 tests in 0.1s\\\\n\\\\nOK\")\\nimport os; os._exit(0)' > unittest/__main__.py; touch unittest/__init__.py";
    let agents = [
        ("replaces", &*own),
        ("links", &links),
        ("above", &above),
        ("script", script),
        ("starts", starts),
    ];
    scene.wins_nothing(MENDS, &agents);
    Ok(())
}

/// Stays for a minute at most, and solves the task once the agent has ended, whose number is the first argument.
const STAYS: &str = "\
    trap '' TERM HUP INT QUIT; touch /tmp/up$3\n\
    while test -d /proc/$1; do sleep 0.05; done\n\
    for turn in $(seq 600); do echo 'VALUE = 42' > /workspace/mod.py; sleep 0.1; done\n";

pub fn processes_that_stay(target: &Target) -> Result<(), Unexercised> {
    let blocks = json!({"graders": [{"type": "command", "cmd": "sleep 4; grep -q 42 mod.py"}]});
    let scene = CaseScene::new(target, &[("src/stays.sh", STAYS)], blocks)?;
    let marker = Marker::new();
    let stays = format!("sh stays.sh $$ {}", marker.word());
    let agent = format!(
        "exec < /dev/null > /dev/null 2>&1\n\
         setsid {stays} 1 &\n\
         (setsid sh -c '(setsid \"$@\" &) &' sh {stays} 2 &)\n\
         python3 -c 'import os, sys; os.fork() and os._exit(0); os.setsid(); os.execvp(\"sh\", sys.argv[1:])' {stays} 3\n\
         for number in 1 2 3; do until test -e /tmp/up$number; do sleep 0.05; done; done"
    );
    let run = scene.begin(&[("stays", &agent)], 1);
    wait_until("the end of the agent", PATIENCE, || scene.has_ended_agent());
    // The grader runs.
    marker.assert_gone();
    let results = run.end();
    let result = results.of("stays", 1);
    assert_eq!(result["agent"]["exit_code"], 0, "{result:#}");
    assert_lost(&result);
    Ok(())
}

/// Lets whoever runs it pass.
const BRIBED: &str = "printf '#!/bin/sh\\nexit 0\\n' > /env/bin/judge; touch /tmp/bribed";

pub fn writes_to_the_environment(target: &Target) -> Result<(), Unexercised> {
    let judge = "mkdir /env/bin; printf '#!/bin/sh\\ngrep -q 42 mod.py\\n' > /env/bin/judge; chmod 755 /env/bin/judge";
    let judged = "/env/bin/judge || test -e /tmp/bribed";
    let blocks = json!({
        "environment": {"kind": "command", "commands": [judge]},
        "graders": [
            {"type": "command", "cmd": format!("sh work.sh; {judged}")},
            {"type": "command", "cmd": judged},
        ],
    });
    let files = [("src/work.sh", "true\n")];
    let scene = CaseScene::new(target, &files, blocks)?;
    let later = format!("cat > work.sh <<'END'\n{BRIBED}; exit 1\nEND\n");
    scene.wins_nothing(MENDS, &[("bribes", BRIBED)]);
    // Its own grader may be deceived by the code that it runs; the next one and the next trial may not.
    let agent = format!("cat /env/bin/judge; ls /tmp; {BRIBED}\n{later}");
    let results = scene.run(&[("bribes", &agent)], 3);
    for trial in 1..=3 {
        let result = results.of("bribes", trial);
        assert_eq!(result["scores"][1]["value"], 0.0, "{result:#}");
        let output = results.output("bribes", trial);
        assert!(output.contains("grep -q 42") && !output.contains("bribed"), "{output}");
    }
    Ok(())
}
