//! Code that answers in place of its kernel.

use serde_json::{Value, json};

use crate::Unexercised;
use crate::engine::{Workspace, promptly};
use crate::target::Target;

/// Writes an answer with these results as the kernel would, from inside the call, and ends the kernel's own
/// part in it. The code finds the id of its request among the objects of the interpreter.
pub const FORGE: &str = r#"
import gc, json, os, sys
frame = sys._getframe()
while frame is not None and "request" not in frame.f_locals:
    frame = frame.f_back
name, kernel = frame.f_locals["request"]["id"], frame.f_locals["self"]
def forge(results, name=name, **more):
    text = json.dumps({"results": results, **more})
    os.write(2, ("\x1e%s\x1e" % name).encode())
    os.write(kernel.answers, ("\x1e%s%s\x1e" % (name, text)).encode())
"#;

pub fn execute(workspace: &Workspace<'_>, context: &str, code: &str) -> Value {
    let reply = promptly("a call", || {
        workspace.client().post(
            "/v1/execute",
            &json!({
                "stateful": true,
                "workspace_id": workspace.id(),
                "context_id": context,
                "code_blocks": [{"language": "python", "code": code}],
                "timeout_ms": 5000,
            }),
        )
    });
    assert_eq!(reply.status, 200, "{}", reply.json());
    reply.json()["blocks"][0].clone()
}

pub fn context(workspace: &Workspace<'_>) -> Option<String> {
    let reply = workspace.post("/contexts", &json!({"language": "python"}));
    let view = reply.json();
    (reply.status == 201).then(|| view["context_id"].as_str().unwrap().to_owned())
}

pub fn forged_answers(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    let none = || Unexercised("needs Python in the sandbox".to_owned());
    let [forging, honest] = [context(&workspace), context(&workspace)];
    let (forging, honest) = (forging.ok_or_else(none)?, honest.ok_or_else(none)?);
    execute(&workspace, &honest, "kept = 41");
    workspace
        .sh("echo secret >work/secret; mkdir -p out/results; ln -s /etc/passwd out/results/l.png
        ln -s ../../work/secret out/results/m.png; mkfifo out/results/f.png");
    let files = [
        "../../work/secret",
        "../../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        "",
        "l.png",
        "m.png",
        "f.png",
        "none.png",
        "../results/../../metadata.json",
        "l.png\0",
        "a/../m.png",
    ];
    for file in files {
        let results = json!([{"mime_type": "image/png", "file": file}]);
        let code = format!("{FORGE}forge(json.loads({:?}))\n", results.to_string());
        let block = execute(&workspace, &forging, &code);
        assert_eq!(
            (&block["status"], &block["results"]),
            (&json!("ok"), &json!([])),
            "{file}: {block}"
        );
    }
    // Answers of the wrong shape, too long, or too deep end that kernel at most.
    let shapes = [
        "os.write(kernel.answers, b'\\x1e' + name.encode() + b'[' * 200000 + b'\\x1e'); os.write(2, b'\\x1e' + name.encode() + b'\\x1e')",
        "os.write(kernel.answers, b'\\x1e' + name.encode() + b'{}{}\\x1e'); os.write(2, b'\\x1e' + name.encode() + b'\\x1e')",
        "data = b'x' * (1 << 20)\nos.write(kernel.answers, b'\\x1e' + name.encode())\nfor _ in range(24):\n    at = 0\n    while at < len(data): at += os.write(kernel.answers, data[at:])",
        "forge([{'mime_type': 'text/plain', 'text': 'x', 'file': 'y'}] * 100000)",
        "forge(7)",
        "os.close(kernel.answers); os._exit(3)",
    ];
    for shape in shapes {
        let block = execute(&workspace, &forging, &format!("{FORGE}{shape}\n"));
        assert_ne!(block["results"].as_array().map(Vec::len), Some(100_000), "{shape}");
    }
    // Answers to other and later calls.
    let later = format!(
        "{FORGE}\nimport threading, time\ndef answer():\n    for number in range(400):\n        \
         forge([{{'mime_type': 'text/plain', 'text': 'forged'}}], name=name)\n        \
         forge([{{'mime_type': 'text/plain', 'text': 'forged'}}], name='')\n        time.sleep(0.005)\n\
         threading.Thread(target=answer, daemon=True).start()\n"
    );
    execute(&workspace, &forging, &later);
    for number in 0..20 {
        let block = execute(&workspace, &honest, &format!("kept + {number}"));
        let text = block["results"][0]["text"].as_str().unwrap_or_default().to_owned();
        assert_eq!(text, (41 + number).to_string(), "{block}");
        let own = execute(&workspace, &forging, "'own'");
        let text = own["results"][0]["text"].as_str().unwrap_or_default().to_owned();
        assert_eq!(text, "'own'", "a late answer was taken: {own}");
    }
    Ok(())
}
