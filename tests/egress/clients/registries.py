"""Makes a registry of each of pip, npm, cargo and Go with one package, in the current directory, for the server at URL.

    registries.py URL
"""

import hashlib
import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

URL = sys.argv[1]


def put(path, contents):
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


def zipped(files):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    return archive.getvalue()


def tarred(files):
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as made:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            made.addfile(member, io.BytesIO(text.encode()))
    return archive.getvalue()


WHEEL = "some-1.0-py3-none-any.whl"
put("pip/some/index.html", f'<!DOCTYPE html><a href="{WHEEL}">{WHEEL}</a>')
put(f"pip/some/{WHEEL}", zipped({
    "some.py": "answer = 'from pip'\n",
    "some-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: some\nVersion: 1.0\n",
    "some-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "some-1.0.dist-info/RECORD": "",
}))

package = {"name": "some", "version": "1.0.0"}
put("npm/some-1.0.0.tgz", tarred({
    "package/package.json": json.dumps(package),
    "package/index.js": "module.exports = 'from npm'\n",
}))
package["dist"] = {"tarball": f"{URL}/npm/some-1.0.0.tgz"}
put("npm/some", json.dumps({"name": "some", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": package}}))

crate = tarred({
    "some-1.0.0/Cargo.toml": "[package]\nname = 'some'\nversion = '1.0.0'\nedition = '2021'\n",
    "some-1.0.0/src/lib.rs": "// from cargo\n",
})
put("cargo/some.crate", crate)
put("cargo/config.json", json.dumps({"dl": f"{URL}/cargo/{{crate}}.crate"}))
put("cargo/so/me/some", json.dumps({
    "name": "some", "vers": "1.0.0", "deps": [], "features": {}, "yanked": False,
    "cksum": hashlib.sha256(crate).hexdigest(),
}) + "\n")

MODULE = "module x.test/some\n"
put("go/x.test/some/@v/v1.0.0.info", json.dumps({"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}))
put("go/x.test/some/@v/v1.0.0.mod", MODULE)
put("go/x.test/some/@v/v1.0.0.zip", zipped({
    "x.test/some@v1.0.0/go.mod": MODULE,
    "x.test/some@v1.0.0/some.go": "package some // from go\n",
}))
