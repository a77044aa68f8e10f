#!/usr/bin/env bash
# With a limit, pump takes not one byte more from an input that others go on reading, and that input is as it was.
. "$(dirname -- "$0")/harness"

seq 100000 >data
for how in "" "--no-splice"; do
    # shellcheck disable=SC2086
    {
        { "$pump" $how --limit 12345 && cat; } <data | cmp - data || fail "file $how"
        cat data | { "$pump" $how --limit 12345 && cat; } | cmp - data || fail "pipe $how"
        { "$pump" $how --limit 5 data data && cat; } <data >out
        { head -c 5 data && cat data; } | cmp - out || fail "limit over all files $how"
        expect "a limit of nothing $how" "$("$pump" $how --limit 0 <data | wc -c)" 0
    }
done
finish
