#!/usr/bin/env bash
# The example asio_priority_server, as a client finds it: order, wrong input, clients that leave in the middle, wrong arguments.
set -euo pipefail

server=${NOWAIT_EXAMPLES_DIR:?}/asio_priority_server
if [[ ! -x $server ]]; then
    echo "not built: $server"
    exit 1
fi
work=$(mktemp -d)
process=
trap '[[ -z $process ]] || kill "$process"; rm -rf -- "$work"' EXIT
failed=0
expect() { # WHAT GOT EXPECTED
    [[ $2 == "$3" ]] || { printf '%s: got\n%s\nnot\n%s\n' "$1" "$2" "$3"; failed=1; }
}

expect "the demonstration" "$("$server")" \
    $'1 PUT THE FIRE OUT\n2 COOK\n3 EAT\n4 SWEEP\n5 DUST'
for bad in x -1 65536 12x ''; do
    code=0
    "$server" "$bad" 2>/dev/null || code=$?
    expect "port '$bad'" "$code" 2
done

mkfifo "$work/says"
"$server" 0 2>"$work/says" &
process=$!
read -r line <"$work/says"
port=${line##*:}
# Connects as descriptor N.
connect() { eval "exec $1<>/dev/tcp/127.0.0.1/$port"; }

connect 5
printf 'no number\n99999 too high\n' >&5
read -r -u 5 one && read -r -u 5 two
expect "wrong requests" "$one, $two" "? PRIORITY WORK, ? PRIORITY WORK"
printf '3 first\n' >&5
read -r -u 5 answer
expect "a right one on the same connection" "$answer" "1 FIRST"

# Clients that leave in the middle of a line, or before they are answered.
for _ in {1..50}; do
    connect 6
    printf '7 half a li' >&6
    exec 6>&-
    connect 6
    printf '7 whole\n7 another\n' >&6
    exec 6>&-
done
# A line without an end: the connection is closed, and nothing else happens.
connect 7
{ head -c 10000 /dev/zero | tr '\0' x >&7; } 2>/dev/null || true
expect "a line without an end" "$(cat <&7 2>/dev/null)" ""

printf '0 last\n' >&5
read -r -u 5 answer
expect "the first client goes on" "${answer#* }" "LAST"
kill -0 "$process" || failed=1
exit $failed
