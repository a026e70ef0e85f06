"""Writes an archive to standard output: argv[1] is tar.gz or zip, standard input a JSON list of entries.

An entry is [name, content], or [name, kind, target]: symlink, hardlink, fifo, or zeros with a size.
"""

import io
import json
import sys
import tarfile
import zipfile


def tar_gz(entries):
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|gz") as archive:
        for name, content, *target in entries:
            info = tarfile.TarInfo(name)
            if not target:
                info.size = len(content.encode())
                archive.addfile(info, io.BytesIO(content.encode()))
            elif content == "zeros":
                info.size = target[0]
                archive.addfile(info, io.BytesIO(bytes(target[0])))
            else:
                kinds = {"symlink": tarfile.SYMTYPE, "hardlink": tarfile.LNKTYPE, "fifo": tarfile.FIFOTYPE}
                info.type, info.linkname = kinds[content], target[0]
                archive.addfile(info)


def zipped(entries):
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, *target in entries:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o120777 if content == "symlink" else 0o100644) << 16
            if content == "zeros":
                archive.writestr(info, bytes(target[0]))
            else:
                archive.writestr(info, target[0] if target else content)
    sys.stdout.buffer.write(whole.getvalue())


{"tar.gz": tar_gz, "zip": zipped}[sys.argv[1]](json.load(sys.stdin))
