//! Read-only trees that workspaces share.

use serde_json::{Value, json};

use crate::Unexercised;
use crate::engine::{EngineClient, Workspace};
use crate::rows::engine::archives;
use crate::target::Target;

/// The digest of the file `a` with the contents `x`: SHA-256 of both, each with a NUL.
const DIGEST: &str = "9702daf1994748818090bc1579c00984a67885e04aea8046fb1f1c5826564acb";

/// What fails is counted. The owner of the directory above may move the name of the tree.
const ATTACK: &str = "\
    n=0; t() { if \"$@\" 2>/dev/null; then echo \"worked: $*\"; else n=$((n+1)); fi; }
    attack() {
      t sh -c \"echo y >$1/a\"; t sh -c \"echo y >>$1/a\"; t truncate -s 0 $1/a; t touch -d 1970-01-01 $1/a
      t chmod u+w $1/a; t chmod u+w $1; t chown $(id -u) $1/a; t rm -rf $1/a; t mv $1/a $1/b
      t mknod $1/a c 0 0; t ln -s x $1/l; t mkdir $1/d; t mv -T work/full $1; t ln -f work/full/f $1/a
      t rmdir $1; t mount -t tmpfs none $1; t umount $1
    }
    mkdir -p work/full; echo y >work/full/f
    attack skills/t
    mv skills moved; attack moved/t
    mv moved/t moved/u; attack moved/u; mv moved/u moved/t
    mkdir -p skills/t; echo y >skills/t/a; rm -r skills; mv moved skills
    attack skills/t
    python3 - <<'PY' 2>/dev/null || :
import os
tries = [
    lambda: os.setxattr('skills/t', 'trusted.overlay.redirect', b'/workspace/work/full'),
    lambda: os.setxattr('skills/t', 'trusted.overlay.opaque', b'y'),
    lambda: os.setxattr('skills/t', 'user.overlay.opaque', b'y'),
    lambda: os.setxattr('work/full', 'trusted.overlay.redirect', b'/m'),
    lambda: os.fchmod(os.open('skills/t/a', os.O_RDONLY), 0o777),
    lambda: os.open('/proc/self/fd/%d' % os.open('skills/t/a', os.O_RDONLY), os.O_RDWR),
    lambda: os.listdir('../m'),
    lambda: os.listdir('/m'),
]
for number, attempt in enumerate(tries):
    try:
        attempt()
        print('worked:', number)
    except OSError:
        pass
PY
    echo $n; cat skills/t/a; echo; stat -c %a skills/t skills/t/a";
const LOOK: &str = "ls skills/t; cat skills/t/a; echo; stat -c %a skills/t skills/t/a";
const SEEN: &str = "a\nx\n555\n555\n";

fn staged(client: &EngineClient) -> (Workspace<'_>, Value) {
    let workspace = client.create(&json!({}));
    let body = json!({"digest": DIGEST, "to": "skills/t", "read_only": true, "allow_mount": true});
    let reply = workspace.post("/stage-directory", &body);
    assert_eq!(reply.status, 200, "{}", reply.json());
    (workspace, reply.json()["mount_used"].clone())
}

pub fn shared_tree(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let archive = archives::of_one_file("a");
    let stored = client.ask("PUT", &format!("/v1/skills/{DIGEST}"), &archive);
    assert!(matches!(stored.status, 200 | 201), "{}", stored.json());
    let (attacker, is_mounted) = staged(&client);
    if is_mounted != json!(true) {
        return Err(Unexercised("needs overlays that follow directories".to_owned()));
    }
    let (other, _) = staged(&client);
    let seen = attacker.sh(ATTACK);
    assert!(!seen.contains("worked"), "{seen}");
    // Four times 17.
    assert_eq!(seen, "68\nx\n555\n555\n");
    let fork = client.made(&attacker.post("/fork", &json!({})));
    let (late, _) = staged(&client);
    for workspace in [&other, &late, &fork, &attacker] {
        assert_eq!(workspace.sh(LOOK), SEEN);
    }
    Ok(())
}
