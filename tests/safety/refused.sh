#!/usr/bin/env bash
# Every file of tests/safety/refused is refused by the compiler, for the reason in its first line; with GOOD it compiles.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
compile=("${CXX:-c++}" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I"$here/../../include")

count=0
for file in "$here"/refused/*.cpp; do
    reason=$(sed -n '1s|^// refused: ||p' "$file")
    [[ -n $reason ]] || { echo "$file: the first line names no reason" >&2; exit 1; }
    "${compile[@]}" -DGOOD "$file" || { echo "$file: the good half does not compile" >&2; exit 1; }
    if said=$("${compile[@]}" "$file" 2>&1); then
        echo "$file: the bad half compiles" >&2
        exit 1
    fi
    grep -qE "$reason" <<<"$said" || { printf '%s: refused, but not for "%s":\n%s\n' "$file" "$reason" "$said" >&2; exit 1; }
    count=$((count + 1))
done
[[ $count -gt 0 ]]
echo "$count mistakes refused"
