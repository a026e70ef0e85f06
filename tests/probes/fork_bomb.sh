# A fork bomb of shell functions: eleven generations, 2047 processes, for three seconds.
bomb() {
	echo started >>/tmp/started
	[ "$1" -gt 0 ] || exec sleep 3
	bomb $(($1 - 1)) &
	bomb $(($1 - 1)) &
	wait
}
: >/tmp/started
mkfifo /tmp/errors
bomb 10 >/dev/null 2>/tmp/errors &
# Nothing below forks, since the process limit may be reached.
exec 3</tmp/errors
refused=
read -r refused <&3
# The last processes may not have reported yet: counts until no more do.
forked=0 before=-1
while [ "$forked" -ne "$before" ]; do
	before=$forked forked=0 turns=0
	while [ "$turns" -lt 100000 ]; do turns=$((turns + 1)); done
	while read -r _; do forked=$((forked + 1)); done </tmp/started
done
echo "forked $forked"
echo "refused ${refused:-never}"
