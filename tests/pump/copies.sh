#!/usr/bin/env bash
# What comes out is what went in, whatever the two ends are and however the bytes are moved.
. "$(dirname -- "$0")/harness"

head -c 3000001 /dev/urandom >data
mkfifo fifo

for how in "" "--no-splice" "--no-enlarge" "--no-splice --buffer-size 1000"; do
    # shellcheck disable=SC2086 # several options
    {
        cat data | "$pump" $how | cat >out
        cmp data out || fail "pipe to pipe $how"
        "$pump" $how <data | cat >out
        cmp data out || fail "file to pipe $how"
        cat data | "$pump" $how >out
        cmp data out || fail "pipe to file $how"
        "$pump" $how <data >out
        cmp data out || fail "file to file $how"
        "$pump" $how data - data <data >out
        cat data data data | cmp - out || fail "several files, standard input among them $how"
        echo first >out
        cat data | "$pump" $how >>out
        { echo first; cat data; } | cmp - out || fail "pipe to the end of a file $how"
        cat data >fifo &
        "$pump" $how <fifo >out
        cmp data out || fail "FIFO as standard input $how"
        "$pump" $how data >fifo &
        cat fifo >out
        cmp data out || fail "FIFO as standard output $how"
        cat data | "$pump" $how | "$pump" $how | "$pump" $how | cmp - data || fail "through three pumps $how"
        expect "/dev/zero $how" "$("$pump" $how --limit 3M </dev/zero | wc -c)" 3145728
        expect "/dev/null as input $how" "$("$pump" $how </dev/null | wc -c)" 0
        expect "/dev/null as output $how" "$(cat data | status "$pump" $how 2>&1 >/dev/null)" ""
        grep -q '^Name:.pump$' <<<"$("$pump" $how /proc/self/status)" || fail "a file without a size $how"
    }
done
wait
finish
