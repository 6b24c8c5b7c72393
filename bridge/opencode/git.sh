#!/bin/sh
# The git that OpenCode finds first on PATH. It runs the system's git with a time limit. OpenCode itself sets none, and makes
# all chats wait for one git. git waits for ever if .gitignore is a FIFO, and needs hours for some patterns.
limit=%d
PATH=${PATH#*:}
for command; do
	case $command in
	-* | /* | *=*) ;;
	*) break ;;
	esac
done

# If ls-tree fails, OpenCode deletes the file that it reverts. ls-tree reads nothing of the workspace. macOS has no timeout.
if [ "$command" = ls-tree ] || ! type timeout >/dev/null 2>&1; then
	exec git "$@"
fi

# OpenCode runs several gits in each step of a turn. So this script starts programs only where it must.
is_recent() {
	[ -e "$1" ] && [ -n "$(find "$1" -mmin -10 2>/dev/null)" ]
}

read_clock() { # in seconds, into now
	if { read -r now rest </proc/uptime; } 2>/dev/null; then
		now=${now%%%%.*}
	else
		now=$(date +%%s)
	fi
}

# These read files that commands can write. One that ran into the limit fails at once for ten minutes. So does one that takes two
# seconds or more when such gits, together, took as long as the limit within ten minutes.
slow=$TMPDIR/slow-git-$command
case $command in
add | check-ignore | checkout | checkout-index | diff | diff-files | ls-files | rev-parse)
	if is_recent "$slow"; then
		echo "git $command took too long less than ten minutes ago" >&2
		exit 124
	fi
	;;
write-tree) # without the git add before it, the snapshot would be older than what people wrote since, and a revert would undo that
	for file in "$TMPDIR"/slow-git-*; do
		if is_recent "$file"; then
			echo "git took too long less than ten minutes ago" >&2
			exit 124
		fi
	done
	;;
esac

read_clock
begin=$now

# After a turn, and in a revert, OpenCode compares in its only thread the text files that "diff --numstat" lists. A file with A
# added and D deleted lines takes it up to 2 A D steps of about a microsecond. This makes files binary when all would take over 3 s.
case " $* " in
*" -z "*) timeout "$limit" git "$@" ;;
*" --numstat "*)
	timeout "$limit" git "$@" >"$TMPDIR/numstat.$$"
	code=$?
	awk -F '\t' -v OFS='\t' '{ n = 2 * $1 * $2; if (steps + n > 2500000) $1 = $2 = "-"; else steps += n; print }' "$TMPDIR/numstat.$$"
	rm -f "$TMPDIR/numstat.$$"
	(exit $code)
	;;
*) timeout "$limit" git "$@" ;;
esac
code=$?
read_clock
if [ $code = 124 ]; then
	echo "git $command was ended after $limit s" >&2
	echo >"$slow"
elif [ $((now - begin)) -gt 1 ]; then
	seconds=$TMPDIR/git-seconds
	echo "$now $((now - begin))" >>"$seconds"
	total=$(awk -v since=$((now - 600)) '$1 > since { s += $2 } END { print s }' "$seconds")
	[ "$total" -lt "$limit" ] || echo >"$slow"
fi
exit $code
