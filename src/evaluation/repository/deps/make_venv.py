import os, sys
root = sys.argv[1]
version = "python%d.%d" % sys.version_info[:2]
executable = getattr(sys, "_base_executable", None) or sys.executable
if os.path.lexists(root):
    sys.exit(0)
os.makedirs(root + "/bin")
os.makedirs(root + "/include")
os.makedirs(root + "/lib/" + version + "/site-packages")
os.symlink("lib", root + "/lib64")
os.symlink(executable, root + "/bin/python3")
for name in ("python", version):
    os.symlink("python3", root + "/bin/" + name)
with open(root + "/pyvenv.cfg", "w") as config:
    config.write("home = %s\n" % os.path.dirname(executable))
    config.write("include-system-site-packages = true\n")
    config.write("version = %d.%d.%d\n" % sys.version_info[:3])
python = root + "/bin/python3"
for name in ("pip", "pip3"):
    path = root + "/bin/" + name
    with open(path, "w") as script:
        script.write("#!/bin/sh\n%s -c 'import pip' 2>/dev/null || %s -m ensurepip >&2 || exit 1\n" % (python, python))
        script.write("exec %s -m pip \"$@\"\n" % python)
    os.chmod(path, 0o755)
# Packages of other environments are found behind those of this one, where these environments exist.
for place in sys.argv[2:]:
    packages = "%s/lib/%s/site-packages" % (place, version)
    with open(root + "/lib/" + version + "/site-packages/behind.pth", "w") as path:
        path.write("import os, site; os.path.isdir(%r) and site.addsitedir(%r)\n" % (packages, packages))
