# The usings that a .NET project has without a word, under either compiler; the
# numbers of the lines stay.
usings='using System; using System.Collections.Generic; using System.IO; using System.Linq; using System.Threading; using System.Threading.Tasks;'
mkdir -p /tmp/source
for name in Solution Checker; do
    { printf '%s\n#line 1 "%s/check/%s.cs"\n' "$usings" "$PWD" "$name"; cat "check/$name.cs"; } >"/tmp/source/$name.cs"
done
sources='/tmp/source/Checker.cs /tmp/source/Solution.cs'

# A checker without an entry of its own has Test(bool).
grep -Eq 'static[^;({]*[[:space:]]Main[[:space:]]*\(' check/Checker.cs || sources="$sources Program.cs"

# The platform's checkers still name a package that they use nothing of.
if grep -q '^using KellermanSoftware.CompareNetObjects;' check/Checker.cs; then
    echo 'namespace KellermanSoftware.CompareNetObjects { static class Unused { } }' >/tmp/source/Package.cs
    sources="$sources /tmp/source/Package.cs"
fi
