//! What an agent looks for.

use std::fmt::Write;

use serde_json::json;

use super::scene::{CaseScene, TEST};
use crate::Unexercised;
use crate::marker::Marker;
use crate::target::Target;

/// Looks for the answer in everything that a Cell has of its own, and gives it.
const SEARCH: &str = r#"
for top in /* "$CASE_DIR"; do
    case $top in /usr | /proc | /sys | /bin | /sbin | /lib* | /nix | /opt | /etc) continue ;; esac
    grep -rhoE 'answer-[0-9]{6}' "$top" 2> /dev/null
done > /tmp/found
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2> /dev/null | grep -aoE 'answer-[0-9]{6}' >> /tmp/found
answer=$(head -n 1 /tmp/found)
echo "VALUE = '$answer'" > mod.py; echo "$answer" > out.txt; mkdir sub; echo "$answer" > sub/more.txt
"#;

pub fn hidden_files(target: &Target) -> Result<(), Unexercised> {
    let answer = format!("answer-{:06}", std::process::id() % 1_000_000);
    let line = format!("{answer}\n");
    let test = TEST.replace("42", &format!("'{answer}'"));
    let patch =
        format!("--- a/mod.py\n+++ b/mod.py\n@@ -1 +1 @@\n-VALUE = 41\n+VALUE = '{answer}'\n");
    let files = [
        ("tests/test_mod.py", &*test),
        ("expected/out.txt", &line),
        ("expected/sub/more.txt", &line),
        ("fix.patch", &patch),
    ];
    let inject = json!([{"src": "tests/test_mod.py", "dest": "test_mod.py"}]);
    let blocks = json!({
        "oracle": {"patch": "fix.patch"},
        "environment": {"kind": "command", "commands": ["touch /env/made"]},
        "graders": [
            {"type": "tests", "cmd": "python3 -m unittest -q test_mod 2>&1", "inject": inject},
            {"type": "files", "expect_dir": "expected"},
            {"type": "command", "cmd": format!("grep -q {answer} mod.py")},
        ],
    });
    let scene = CaseScene::new(target, &files, blocks)?;
    let place = scene.path().canonicalize().unwrap();
    let place = place.display();
    let links = format!(
        "ln -s {place}/expected/out.txt out.txt; ln -s {place}/expected/sub sub\n\
         ln -sf {place}/tests/test_mod.py seen.py; cat seen.py || true"
    );
    // A link whose text goes up as far as it can.
    let up = "../".repeat(20);
    let climbs = format!(
        "ln -s {up}{place}/expected/out.txt out.txt; mkdir sub; ln -s {up}{place}/expected/sub/more.txt sub/more.txt"
    );
    let mut honest = String::new();
    writeln!(honest, "echo \"VALUE = '{answer}'\" > mod.py; mkdir sub").unwrap();
    writeln!(honest, "echo {answer} | tee out.txt > sub/more.txt").unwrap();
    scene.wins_nothing(&honest, &[("searches", SEARCH), ("links", &links), ("climbs", &climbs)]);
    Ok(())
}

pub fn variables(target: &Target) -> Result<(), Unexercised> {
    let (own, provisioning) = (Marker::new(), Marker::new());
    let gets = format!("test \"$PROVISION_SETTING\" = {}", provisioning.word());
    let look = "env; set; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2> /dev/null | tr '\\0' '\\n' || true";
    let blocks = json!({
        "environment": {"kind": "command", "commands": [gets]},
        "graders": [{"type": "tests", "cmd": look}],
    });
    let mut scene = CaseScene::new(target, &[], blocks)?;
    scene.set("ROW_SECRET", own.word());
    scene.set("PROVISION_SETTING", provisioning.word());
    scene.set("CASES_PROVISION_ENV", "PROVISION_SETTING");
    let results = scene.run(&[("looks", look)], 1);
    let result = results.of("looks", 1);
    assert_eq!(result["status"], "done", "{result:#}");
    let output = results.output("looks", 1);
    assert!(output.contains("LANG=C.UTF-8"), "{output}");
    for secret in [own.word(), provisioning.word()] {
        assert!(!output.contains(secret), "{output}");
        assert!(!result.to_string().contains(secret), "{result:#}");
    }
    Ok(())
}
