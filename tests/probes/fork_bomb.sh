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
# Nothing below forks: by then there may be no process to be had.
exec 3</tmp/errors
refused=
read -r refused <&3
# Those that were made last have yet to say so: counted until there are no more.
forked=0 before=-1
while [ "$forked" -ne "$before" ]; do
	before=$forked forked=0 turns=0
	while [ "$turns" -lt 100000 ]; do turns=$((turns + 1)); done
	while read -r _; do forked=$((forked + 1)); done </tmp/started
done
echo "forked $forked"
echo "refused ${refused:-never}"
