"""A build backend of Python packages that needs no other package.

A package is a directory with a file PACKAGE, which holds its name and version, and code below src/. As a program it
makes the package NAME VERSION and writes it into DIRECTORY as a wheel or an sdist.
"""

import base64
import hashlib
import os
import pathlib
import shutil
import sys
import tarfile
import tempfile
import zipfile

PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def identity():
    return pathlib.Path("PACKAGE").read_text().split()


def write_wheel(directory, files):
    name, version = identity()
    info = f"{name}-{version}.dist-info"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    wheel = f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory, wheel), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


def build_wheel(directory, config_settings=None, metadata_directory=None):
    source = pathlib.Path("src")
    return write_wheel(directory, {str(path.relative_to(source)): path.read_text() for path in source.rglob("*.py")})


def build_editable(directory, config_settings=None, metadata_directory=None):
    return write_wheel(directory, {f"{identity()[0]}.pth": f"{pathlib.Path('src').absolute()}\n"})


def make_package(directory, name, version):
    code = directory / "src" / name
    code.mkdir(parents=True)
    (code / "__init__.py").write_text(f"VERSION = '{version}'\n")
    (directory / "PACKAGE").write_text(f"{name} {version}\n")
    (directory / "pyproject.toml").write_text(PYPROJECT)
    (directory / "PKG-INFO").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    shutil.copy(__file__, directory / "backend.py")


def main():
    kind, name, version, directory = sys.argv[1:]
    directory = pathlib.Path(directory).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    if kind == "source":
        return make_package(directory, name, version)
    with tempfile.TemporaryDirectory() as place:
        whole = pathlib.Path(place, f"{name}-{version}")
        make_package(whole, name, version)
        if kind == "sdist":
            with tarfile.open(directory / f"{name}-{version}.tar.gz", "w:gz") as archive:
                archive.add(whole, whole.name)
        else:
            os.chdir(whole)
            build_wheel(directory)


if __name__ == "__main__":
    main()
