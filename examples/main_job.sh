#!/usr/bin/env bash
# Pumps a real tree between processes, compares checksums, then runs the quick benchmark of the same paths.
set -euo pipefail

case ${1:-} in
-h | --help)
    cat <<'EOT'
Usage: examples/main_job.sh [--no-bench]

Sends a tar of the system's headers and libraries through pump, from one process to the next, and compares the checksum
with the one of the same tar without pump. Then runs `bench/run --quick pipes`. Fails if the checksums differ.
EOT
    exit 0
    ;;
esac

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
pump=${NOWAIT_EXAMPLES_DIR:-$root/build/release/examples}/pump
[[ -x $pump ]] || { echo "main_job.sh: $pump is not built: run examples/run" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

# Headers and shared libraries, in an order that is the same for both runs, until it is enough for some seconds.
enough=$((300 * 1024 * 1024))
{ find /usr/include /usr/lib/*-linux-gnu -xdev -type f \( -path '/usr/include/*' -o -name '*.so*' \) -readable \
    -printf '%s\t%p\0' 2>/dev/null || true; } | LC_ALL=C sort -z -t $'\t' -k 2 |
    awk -v RS='\0' -v ORS='\0' -F '\t' -v enough="$enough" '{ sum += $1; if (sum < enough) print $2 }' >"$work/files"
[[ -s $work/files ]] || { echo "main_job.sh: no headers and no libraries here" >&2; exit 1; }

archive() {
    tar --create --file - --no-recursion --null --files-from "$work/files" 2>"$work/messages" ||
        { cat "$work/messages" >&2 && false; }
}
seconds() { awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN { printf "%.2f", to - from }'; }
export LC_ALL=C

printf '\n== pump: a tar of headers and libraries, from process to process ==\n\n'
printf '  %-34s %s\n' "files" "$(tr -cd '\0' <"$work/files" | wc -c)"

archive >/dev/null # brings the files into memory, so that both runs find the same
began=$EPOCHREALTIME
plain=$(archive | sha256sum)
plain_time=$(seconds "$began")

began=$EPOCHREALTIME
pumped=$(archive | "$pump" --progress --name first --counters 2>"$work/first" |
    "$pump" --progress --name second 2>"$work/second" | sha256sum)
pumped_time=$(seconds "$began")

bytes=$(sed -n 's/^pump: second: \([0-9]*\) bytes .*/\1/p' "$work/second")
row() {
    awk -v what="$1" -v bytes="$bytes" -v time="$2" -v sum="${3%% *}" \
        'BEGIN { printf "  %-34s %7.2f s %8.0f MB/s   sha256 %.16s...\n", what, time, bytes / time / 1e6, sum }'
}
printf '  %-34s %s\n\n' "bytes" "$bytes"
row "tar | sha256sum" "$plain_time" "$plain"
row "tar | pump | pump | sha256sum" "$pumped_time" "$pumped"

printf '\n  the first pump said:\n'
sed -n '/^pump:/,$p' "$work/first" | sed 's/^/    /'

if [[ $plain != "$pumped" ]]; then
    printf '\n  checksums: DIFFERENT\n' >&2
    exit 1
fi
printf '\n  checksums: equal\n'

if [[ ${1:-} != --no-bench && -d $root/bench/pipes ]]; then
    printf '\n== the benchmark, quick ==\n\n'
    "$root/bench/run" --quick pipes
fi
