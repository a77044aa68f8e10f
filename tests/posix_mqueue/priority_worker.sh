#!/usr/bin/env bash
# The example: urgent jobs first, from many processes, through a crash, with every result in the FIFO.
set -euo pipefail

worker=${NOWAIT_EXAMPLES_DIR:?where the examples are}/priority_worker
work=$(mktemp -d)
cd "$work"
queues=()
finish() {
    # shellcheck disable=SC2046
    kill $(jobs -p) 2>/dev/null || true
    wait
    for queue in "${queues[@]}"; do
        "$worker" remove "$queue" 2>/dev/null || true
    done
    rm -rf -- "$work"
}
trap finish EXIT

failures=0
expect() { # WHAT GOT WANTED
    [[ $2 == "$3" ]] || {
        printf 'failed: %s: got\n%s\nwanted\n%s\n' "$1" "$2" "$3" >&2
        failures=$((failures + 1))
    }
}
until_fifo() { # PATH SERVER
    until [[ -p $1 ]]; do
        kill -0 "$2" 2>/dev/null || { echo "the server has ended" >&2; exit 1; }
    done
}
name() {
    queue=/priority_worker_$$_$1
    queues+=("$queue")
}

# The urgent first: all jobs are there before anybody reads results, and one worker does them one by one.
for how in "" --dedicated; do
    name "urgent$how"
    "$worker" submit "$queue" 1 reverse one
    "$worker" submit "$queue" 1 primes 100
    "$worker" submit "$queue" 9 reverse urgent
    "$worker" submit "$queue" 1 nonsense
    "$worker" submit "$queue" 0 primes many
    # shellcheck disable=SC2086
    "$worker" serve "$queue" "results$how" --workers 1 --count 5 $how &
    until_fifo "results$how" $!
    expect "order $how" "$(cat "results$how")" \
        "priority 9: reverse urgent = tnegru
priority 1: reverse one = eno
priority 1: primes 100 = 25
priority 1: nonsense = no such job
priority 0: primes many = not a number up to 100000000"
    wait $!
done

# Many processes at once, more jobs than the queue holds, several workers: every job is done once.
name many
"$worker" serve "$queue" many --workers 3 --count 60 &
server=$!
until_fifo many "$server"
cat many >all &
reader=$!
submitters=()
for process in 1 2 3 4 5 6; do
    for job in 0 1 2 3 4 5 6 7 8 9; do
        "$worker" submit "$queue" "$job" reverse "$process-$job" || exit 1
    done &
    submitters+=($!)
done
for one in "${submitters[@]}"; do wait "$one"; done
wait "$server"
wait "$reader"
wanted=$(for process in 1 2 3 4 5 6; do
    for job in 0 1 2 3 4 5 6 7 8 9; do echo "priority $job: reverse $process-$job = $job-$process"; done
done | sort)
expect "every job once" "$(sort all)" "$wanted"

# A server that is killed leaves the jobs, and the next one does them.
name crash
"$worker" serve "$queue" crash &
server=$!
until_fifo crash "$server"
"$worker" submit "$queue" 3 reverse kept
"$worker" submit "$queue" 7 reverse also
kill -KILL "$server"
wait "$server" || true
"$worker" serve "$queue" crash --workers 1 --count 2 &
expect "after a crash" "$(cat crash)" "priority 7: reverse also = osla
priority 3: reverse kept = tpek"
wait $!

# A signal ends it in order, while it waits for a reader, and while it waits for jobs.
name stopped
"$worker" serve "$queue" stopped &
server=$!
until_fifo stopped "$server"
kill -TERM "$server"
wait "$server"
"$worker" submit "$queue" 1 reverse first
"$worker" serve "$queue" stopped &
server=$!
exec 3<stopped
read -r line <&3
expect "the job before the stop" "$line" "priority 1: reverse first = tsrif"
kill -TERM "$server"
wait "$server"
expect "the end of the results" "$(cat <&3)" ""
exec 3<&-

# What is wrong is said, with its reason.
says() { # WANTED-STATUS WANTED-TEXT COMMAND...
    local code=0 status=$1 text=$2
    shift 2
    "$worker" "$@" 2>message || code=$?
    expect "status of $*" "$code" "$status"
    grep -q -- "$text" message || expect "message of $*" "$(cat message)" "...$text..."
}
says 1 "a name is a slash" submit noslash 1 reverse x
says 1 "priorities are 0 to 32767" submit "$queue" 32768 reverse x
says 1 "longer than the queue's message_bytes" submit "$queue" 1 reverse "$(printf '%600s' x)"
says 2 "usage:" submit "$queue" high reverse x
says 2 "usage:" serve "$queue"
touch regular
says 1 "regular" serve "$queue" regular

# A reader that goes away is an error, not a death by SIGPIPE.
name gone
"$worker" serve "$queue" gone 2>message &
server=$!
until_fifo gone "$server"
exec 4<gone
exec 4<&-
"$worker" submit "$queue" 1 reverse x
code=0
wait "$server" || code=$?
expect "status without a reader" "$code" 1
expect "message without a reader" "$(cut -d: -f1-3 message)" "priority_worker: gone: Broken pipe"

[[ $failures -eq 0 ]]
