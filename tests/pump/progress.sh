#!/usr/bin/env bash
# What pump says on standard error, and when it says nothing.
. "$(dirname -- "$0")/harness"

head -c 1000000 /dev/zero >data
bar='\[=+\] +100%'
total='^pump: 1000000 bytes in [0-9.]+ s, [0-9.]+ [KMGT]?i?B/s$'

"$pump" data 2>messages >/dev/null
expect "not a terminal" "$(cat messages)" ""

"$pump" --progress data 2>messages >/dev/null
grep -Eq "$bar" messages || fail "bar of a file: $(cat messages)"
grep -Eq "$total" messages || fail "exact count: $(cat messages)"

cat data | "$pump" -f 2>messages >/dev/null
grep -q '%' messages && fail "a bar of unknown length: $(cat messages)"
grep -Eq "$total" messages || fail "exact count of a pipe: $(cat messages)"

cat data | "$pump" -f --size 2000000 2>messages >/dev/null
grep -Eq '\[=+> *\] +50%' messages || fail "bar of a size given: $(cat messages)"

"$pump" -f --limit 500000 data data 2>messages >/dev/null
grep -Eq "$bar" messages || fail "bar of a limit: $(cat messages)"
grep -q '^pump: 500000 bytes' messages || fail "count at a limit: $(cat messages)"

"$pump" -f --name sample data 2>messages >/dev/null
grep -q '^sample: ' messages || fail "name: $(cat messages)"

"$pump" -f -q data 2>messages >/dev/null
expect "the last of -f and -q holds" "$(cat messages)" ""

# While the data rests the progress goes on: the writer ends only after lines that came when all bytes had gone.
mkfifo data.fifo lines.fifo
"$pump" -f -i 0.01 <data.fifo 2>lines.fifo >/dev/null &
exec 3>data.fifo 4<lines.fifo
printf abc >&3
line=
until [[ $line == "3 B "* ]]; do
    read -r line <&4
done
read -r line <&4
exec 3>&-
[[ $line == "3 B "* ]] || fail "line of a rest: $line"
cat <&4 >rest
wait
grep -q '^pump: 3 bytes' rest || fail "last line: $(cat rest)"

"$pump" --counters <data 2>messages | cat >/dev/null
grep -Eq '^splice +[0-9]+' messages || fail "counters of a splice: $(cat messages)"
"$pump" --counters --no-splice <data 2>messages | cat >/dev/null
grep -Eq '^write +[0-9]+' messages || fail "counters of a write: $(cat messages)"
grep -Eq 'splice' messages && fail "a splice with --no-splice: $(cat messages)"
grep -Eq '^[0-9]+ turns, .* completions$' messages || fail "counters of the loop: $(cat messages)"
finish
