#!/usr/bin/env bash
# Every line of code on docs/coroutine-safety.md stands in the sources that are compiled beside this file.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
page=$here/../../docs/coroutine-safety.md

normal() { sed -E 's/^\[\[maybe_unused\]\] //; s/^[[:space:]]+//; s/[[:space:]]+$//; s/[[:space:]]+/ /g' "$@"; }

sources=$(normal "$here"/pairs.cpp "$here"/refused/*.cpp)
lines=0
while IFS= read -r line; do
    [[ -n $line ]] || continue
    grep -qxF -- "$line" <<<"$sources" || { echo "only on the page: $line" >&2; exit 1; }
    lines=$((lines + 1))
done < <(awk '/^```cpp$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$page" | normal)
[[ $lines -gt 50 ]] || { echo "hardly any code on the page" >&2; exit 1; }
echo "$lines lines of the page are compiled"
