# The SDK's compiler called as the program it is. A project would be restored and
# evaluated by MSBuild, and compiled by a server that starts for one file.
set -e
. ./sources.sh

newest() { printf '%s\n' "$@" | sort -V | tail -n 1; }

root=$(dirname "$(readlink -f "$(command -v dotnet)")")
compiler=$(newest "$root"/sdk/*/Roslyn/bincore/csc.dll)
references=$(newest "$root"/packs/Microsoft.NETCore.App.Ref/*/ref/net*)
framework=${references##*/}
printf -- '-r:"%s"\n' "$references"/*.dll >/tmp/references.rsp

# The heap ends below the box's memory, so that a solution gets an exception; a
# second thread to collect it is more than a short run needs.
cat >/tmp/check.runtimeconfig.json <<END
{"runtimeOptions": {
  "tfm": "$framework",
  "framework": {"name": "Microsoft.NETCore.App", "version": "${framework#net}.0"},
  "configProperties": {"System.GC.HeapHardLimit": 536870912, "System.GC.Concurrent": false}
}}
END

# The compiler reports on stdout, which carries items here.
dotnet exec "$compiler" -nologo -noconfig -nostdlib -warn:0 -nullable:enable -langversion:latest -utf8output \
    @/tmp/references.rsp -out:/tmp/check.dll $sources >&2
exec dotnet /tmp/check.dll
