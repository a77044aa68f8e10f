#!/usr/bin/env bash
# Wrong usage is status 2 and a word about it; help and version are status 0 on standard output.
. "$(dirname -- "$0")/harness"

for wrong in --none "--limit 3X" "--limit -1" "--limit 99999999T" "--size x" "--interval 0" "--interval 1s" \
    "--buffer-size 0" "--buffer-size 2G" "--limit"; do
    # shellcheck disable=SC2086
    expect "$wrong" "$(status "$pump" $wrong </dev/null 2>messages)" 2
    grep -q "Try 'pump --help'" messages || fail "$wrong: $(cat messages)"
done
grep -q '^Usage: pump' < <("$pump" --help) || fail "help"
grep -q '^pump (nowait ' < <("$pump" --version) || fail "version"
expect "help to a full device" "$(status sh -c 'exec "$0" --help >/dev/full' "$pump")" 1
finish
