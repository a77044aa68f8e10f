#!/bin/sh
# The attempt is inlined into the awaiting code: in the coroutine's own body there is a `syscall` instruction, and one can
# get from the statement before it to the statement after it without a call. Looks at code from the shipping compiler.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(uname -m)" = x86_64 ] || { echo "skipped: not x86-64"; exit 0; }
compiler=${CXX:-g++}
for tool in "$compiler" objdump awk; do
    command -v "$tool" >/dev/null || { echo "skipped: no $tool"; exit 0; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/body.cpp" <<'SOURCE'
#include <nowait/nowait.hpp>
#include <array>
// Instructions that do nothing and are easy to find in a listing.
#define BEFORE asm volatile("nopl 0x1111(%%rax)" ::: "memory")
#define AFTER asm volatile("nopl 0x2222(%%rax)" ::: "memory")
nowait::task<> reads(const nowait::pipe_reader& from) {
    std::array<std::byte, 64> room;
    for (;;) {
        BEFORE;
        auto n = co_await from.read(std::span<std::byte>(room));
        AFTER;
        if (!n || *n == 0)
            co_return;
    }
}
nowait::task<> writes(const nowait::pipe_writer& to) {
    for (;;) {
        BEFORE;
        auto n = co_await to.write(std::string_view("a message"));
        AFTER;
        if (!n)
            co_return;
    }
}
SOURCE
"$compiler" -std=c++20 -O2 -I"$here/include" -c "$work/body.cpp" -o "$work/body.o"
objdump -d --no-show-raw-insn "$work/body.o" >"$work/listing"

# Follows jumps, both ways where there are two, and never goes past a call.
failed=0
for name in reads writes; do
    awk -v name="$name" '
        /^[0-9a-f]+ <.*>:$/ {
            inside = index($2, "5" name) > 0 || index($2, "6" name) > 0
            if (index($2, ".actor") == 0 && index($2, ".resume") == 0)
                inside = 0
            next
        }
        !inside || !/^ +[0-9a-f]+:/ { next }
        {
            at = $1; sub(/:$/, "", at)
            order[++count] = at
            index_of[at] = count
            operation[count] = $2
            target[count] = $3
            if ($0 ~ /0x1111\(/) before[++befores] = count
            if ($0 ~ /0x2222\(/) after[count] = 1
            if ($2 == "syscall") { attempt[count] = 1; attempts++ }
        }
        # Breadth first from `start`; true if a place in `wanted` is reached. The first one is left in `reached`.
        function walk(start, wanted,    queue, seen, head, tail, i, following, goes_on) {
            split("", queue); split("", seen)
            head = tail = 1; queue[1] = start; seen[start] = 1
            while (head <= tail) {
                i = queue[head++]
                if (i != start && (i in wanted)) { reached = i; return 1 }
                goes_on = 1
                if (operation[i] ~ /^call/ || operation[i] ~ /^ret/) continue
                if (operation[i] ~ /^j/) {
                    following = index_of[target[i]]
                    if (following && !(following in seen)) { seen[following] = 1; queue[++tail] = following }
                    goes_on = operation[i] != "jmp"
                }
                if (goes_on && i < count && !((i + 1) in seen)) { seen[i + 1] = 1; queue[++tail] = i + 1 }
            }
            return 0
        }
        END {
            if (!attempts) { print name ": no syscall instruction in the body of the coroutine"; exit 1 }
            if (!befores) { print name ": the listing shows no mark"; exit 1 }
            if (!walk(before[1], attempt)) { print name ": a call stands before the attempt"; exit 1 }
            if (!walk(reached, after)) { print name ": a call stands between the attempt and the next statement"; exit 1 }
            print name ": the attempt stands in the coroutine, without a call around it"
        }' "$work/listing" || failed=1
done
exit $failed
