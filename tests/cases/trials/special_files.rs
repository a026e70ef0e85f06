//! Fifos, sockets and device nodes that agents leave.

use std::fs;

use serde_json::json;

use super::scene::{HIDDEN_TEST, Scene};

/// An agent that leaves one of each beside its work, in the environment too, and in the place of a file.
const BLOCKS: &str =
    "environment: {kind: command, commands: ['echo made > \"$TMPDIR/made\"'], share: false}
harnesses:
  mine:
    kind: command
    argv:
    - python3
    - -c
    - |
      import os, socket
      open('add.py', 'w').write('def add(a, b):\\n    return a + b\\n')
      os.mkdir('d')
      os.mkfifo('d/fifo')
      os.remove('kept')
      os.mkfifo('kept')
      os.chdir('d')
      socket.socket(socket.AF_UNIX).bind('socket')
      try: os.mknod('null', 0o20666, os.makedev(1, 3))
      except OSError: pass
matrix: {harnesses: [mine], models: [m]}
";

#[test]
fn an_agent_that_leaves_special_files_is_graded_by_its_other_files() {
    for executor in ["sandboxed", "local"] {
        let Some(scene) = Scene::new(&format!(
            "{BLOCKS}{HIDDEN_TEST}- {{type: command, cmd: 'ls d 2>/dev/null | grep . && exit 1; test ! -p kept'}}\n"
        )) else {
            return;
        };
        let end = scene.run(&["--executor", executor, "--keep"]);
        assert_eq!((end.code, end.cells()), (Some(0), [1, 0, 0, 0]), "{executor}: {}", end.stderr);
        let result = scene.result(&end, "mine", 1);
        assert_eq!(result["scores"][0]["value"], json!(1.0), "{executor}: {result}");
        assert_eq!(result["overall_passed"], json!(true), "{executor}: {result}");
        let patch = fs::read_to_string(scene.cell(&end, "mine", 1).join("agent.patch")).unwrap();
        assert!(patch.contains("+    return a + b"), "{executor}: {patch}");
        assert!(!patch.contains("fifo") && !patch.contains("socket"), "{executor}: {patch}");
        scene.assert_nothing_left();
    }
}
