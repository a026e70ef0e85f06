# What /proc shows of anybody else, and whether its sensitive files can be read.
others=0
for status in /proc/[0-9]*/status; do
	grep -q '^Uid:.*10001' "$status" || [ "$status" = /proc/1/status ] || others=$((others + 1))
done
echo "others $others"
head -c 1 /proc/kcore >/tmp/kcore 2>/dev/null && [ -s /tmp/kcore ] && echo "kcore read" || echo "kcore refused"
