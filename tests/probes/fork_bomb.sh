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
forked=0
while read -r _; do forked=$((forked + 1)); done </tmp/started
echo "forked $forked"
echo "refused ${refused:-never}"
