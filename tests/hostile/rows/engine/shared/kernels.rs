//! Kernels that forge answers, where several share a sandbox, and across tokens.

use serde_json::{Value, json};

use super::init::shared;
use crate::Unexercised;
use crate::engine::{Workspace, promptly};
use crate::rows::engine::contexts::{FORGE, context, execute};
use crate::rows::engine::owners::two_tokens;
use crate::target::Target;

/// Writes an answer with a guess of every id that it may have seen into each pipe that it can open.
const SPRAY: &str = r#"
import glob, threading, time
def spray():
    text = json.dumps({"results": [{"mime_type": "text/plain", "text": "forged"}]})
    for turn in range(200):
        for path in glob.glob("/proc/[0-9]*/fd/*"):
            try:
                if not os.readlink(path).startswith("pipe:"): continue
                end = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                for guess in ("", "0" * 32):
                    os.write(end, ("\x1e%s\x1e\x1e%s%s\x1e" % (guess, guess, text)).encode())
                os.close(end)
            except OSError: pass
        time.sleep(0.01)
threading.Thread(target=spray, daemon=True).start()
"#;

fn python(workspace: &Workspace<'_>) -> Result<String, Unexercised> {
    context(workspace).ok_or_else(|| Unexercised("needs Python in the sandbox".to_owned()))
}

pub fn forged_frames(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = shared(&client)?;
    let (forging, honest) = (python(&workspace)?, python(&workspace)?);
    execute(&workspace, &honest, "kept = 41");
    workspace.sh("echo secret >work/secret; mkdir -p out/results; printf abc >out/results/real.png
        ln -s ../../work/secret out/results/link.png");
    let mut calls = 0;
    let mut forge = |results: &Value, more: &str| {
        let code = format!("{FORGE}forge(json.loads({:?}){more})\n", results.to_string());
        calls += 1;
        let block = execute(&workspace, &forging, &code);
        // The service counts, whatever the kernel says.
        assert_eq!(
            (&block["status"], &block["execution_count"]),
            (&json!("ok"), &json!(calls)),
            "{block}"
        );
        assert_eq!(
            (&block["state_lost"], &block["exit_code"]),
            (&json!(false), &Value::Null),
            "{block}"
        );
        block["results"].clone()
    };
    let image =
        |file: &str| json!([{"mime_type": "image/png", "file": file, "size_bytes": 1_u64 << 40}]);
    for file in
        ["../../work/secret", "../../metadata.json", "/etc/passwd", "link.png", "none.png", ".."]
    {
        assert_eq!(forge(&image(file), ""), json!([]), "{file}");
    }
    let more = ", execution_count=99, state_lost=True, exit_code=7, context_id='other', blocks=[1]";
    let real = forge(&image("real.png"), more);
    let wanted =
        json!([{"mime_type": "image/png", "path": "out/results/real.png", "size_bytes": 3}]);
    assert_eq!(real, wanted);
    // Printed frames are output, of this call alone.
    let printed =
        "print('\\x1e' + '0' * 32 + '{\"results\":[]}\\x1e'); print('\\x1e\\x1e{}\\x1e'); 'own'";
    let block = execute(&workspace, &forging, printed);
    assert_eq!(block["results"][0]["text"], "'own'", "{block}");
    assert!(block["stdout"].as_str().unwrap().contains("{\"results\":[]}"), "{block}");
    let block = execute(&workspace, &honest, "kept + 1");
    assert_eq!(
        (&block["results"][0]["text"], &block["execution_count"]),
        (&json!("42"), &json!(2))
    );
    Ok(())
}

pub fn forged_across_tokens(target: &Target) -> Result<(), Unexercised> {
    let directory = tempfile::tempdir().unwrap();
    let (_service, [one, two]) = two_tokens(target, directory.path())?;
    let (attacking, attacked) = (shared(&one)?, shared(&two)?);
    let (forging, honest) = (python(&attacking)?, python(&attacked)?);
    execute(&attacked, &honest, "kept = 41");
    let sprayed = execute(&attacking, &forging, &format!("{FORGE}{SPRAY}"));
    assert_eq!(sprayed["status"], "ok", "{sprayed}");
    for number in 0..10 {
        let block = execute(&attacked, &honest, &format!("kept + {number}"));
        assert_eq!(block["results"][0]["text"], (41 + number).to_string(), "{block}");
        assert_eq!(block["execution_count"], 2 + number, "{block}");
    }
    // By id: its own workspace with another's context, and another's workspace with either.
    for (workspace, context, code) in [
        (attacking.id(), &honest, "context.not_found"),
        (attacked.id(), &honest, "workspace.not_found"),
        (attacked.id(), &forging, "workspace.not_found"),
    ] {
        let body = json!({"workspace_id": workspace, "context_id": context, "stateful": true,
            "code_blocks": [{"code": "kept = 0", "language": "python"}]});
        let refused = promptly("a refusal", || one.post("/v1/execute", &body));
        refused.assert_error(404, code);
    }
    let block = execute(&attacked, &honest, "kept");
    assert_eq!(block["results"][0]["text"], "41", "{block}");
    Ok(())
}
