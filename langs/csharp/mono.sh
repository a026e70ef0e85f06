set -e
. ./sources.sh

mcs -langversion:latest -warn:0 -r:System.Numerics -r:System.Web.Extensions -out:/tmp/check.exe $sources >&2
# The heap ends below the box's memory, so that a solution gets an exception.
MONO_GC_PARAMS=max-heap-size=512m exec mono /tmp/check.exe
