#!/usr/bin/env bash
# An end that cannot be used is a clear message and status 1.
. "$(dirname -- "$0")/harness"

echo text >data

# refuses WHAT MESSAGE COMMAND: a shell command that has $pump.
refuses() {
    local what=$1 message=$2 got code=0
    got=$(pump=$pump bash -c "$3" 2>&1) || code=$?
    expect "$what" "$got" "pump: $message"
    expect "$what, status" "$code" 1
}

refuses "closed input" "standard input: Bad file descriptor" '"$pump" <&- | cat; exit ${PIPESTATUS[0]}'
refuses "closed output" "standard output: Bad file descriptor" '"$pump" <data >&-'
refuses "input for writing only" "standard input: Bad file descriptor" '"$pump" 0>other | cat; exit ${PIPESTATUS[0]}'
refuses "output for reading only" "standard output: Bad file descriptor" '"$pump" <data 1</dev/null'
refuses "directory as input" "standard input: Is a directory" '"$pump" </ | cat; exit ${PIPESTATUS[0]}'
refuses "directory as file" "/: Is a directory" '"$pump" / | cat; exit ${PIPESTATUS[0]}'
refuses "directory as output" "standard output: Bad file descriptor" '"$pump" <data 1</'
refuses "no such file" "none: No such file or directory" '"$pump" none | cat; exit ${PIPESTATUS[0]}'
refuses "full device" "standard output: No space left on device" '"$pump" data >/dev/full'
refuses "full device, from a pipe" "standard output: No space left on device" 'cat data | "$pump" >/dev/full'
refuses "output is input" "data: input file is output file" '"$pump" data >>data'

expect "the files after a missing one" "$("$pump" data none data 2>/dev/null | wc -l)" 2
expect "closed input that is not used" "$("$pump" data <&-)" text
# A closed standard error must not become the number of another file that then receives the messages.
expect "closed error" "$(status "$pump" none 2>&-)" 1
expect "closed error, data unharmed" "$("$pump" none data 2>&- || true)" text
finish
