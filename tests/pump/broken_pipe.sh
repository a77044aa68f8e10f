#!/usr/bin/env bash
# A reader that goes away is an error like any other: a message, status 1, no death by SIGPIPE.
. "$(dirname -- "$0")/harness"

for how in "" "--no-splice"; do
    mkfifo in out
    # shellcheck disable=SC2086
    "$pump" $how <in >out 2>messages &
    exec 3>in 4<out 4<&- # the reader has come and gone before there is any data
    head -c 1M /dev/zero >&3 2>/dev/null || true
    exec 3>&-
    code=0
    wait $! || code=$?
    expect "status $how" "$code" 1
    expect "message $how" "$(cat messages)" "pump: standard output: Broken pipe"
    rm in out
done
finish
