#!/bin/bash
# Reports of a recording of ten million records: time and peak memory of each, on two cores; and the bytes that an event takes
# beside Chrome's JSON of the same events.
# usage: bench/report.sh      RECORDS=10000000 JSON_RECORDS=1000000 CORES=0,1
set -eu
cd "$(dirname "$0")/.."
# scripts/build.sh makes this preset without tests, whose generator is wanted here
build=build/release
cmake --preset release -DMILLRACE_TESTS=ON >/dev/null
ninja -C $build millrace_cli recording_make >/dev/null
millrace=$build/millrace make=$build/tests/support/recording_make
records=${RECORDS:-10000000} json_records=${JSON_RECORDS:-1000000} cores=${CORES:-0,1}
work=build/bench
mkdir -p "$work"
file=$work/report-$records.sqlite
[ -f "$file" ] || "$make" "$file" "$records"
cat "$file" >/dev/null

measure() {
    printf '%-44s ' "$*"
    /usr/bin/time -f '%e s, of CPU %U + %S s, %M KB' taskset -c "$cores" "$millrace" report "$@" 2>&1 >/dev/null | tail -1
}
measure "$file"
for report in nvtx_sum osrt_sum cuda_api_sum cuda_gpu_kern_sum cuda_gpu_mem_time_sum cuda_gpu_mem_size_sum cuda_gpu_sum \
    cuda_kern_exec_sum; do
    measure "$file" -r "$report"
done
measure "$file" -r mem_ops --sort duration -n 10
measure "$file" -r cuda_gpu_trace -n 10
measure "$file" -r cuda_api_trace -n 10
measure "$file" --diff "$file"

small=$work/report-$json_records
"$make" "$small.sqlite" "$json_records" "$small.json" >/dev/null
gzip -kf1 "$small.json"
for name in "$small.sqlite" "$small.json" "$small.json.gz"; do
    bytes=$(wc -c <"$name")
    echo "$name: $bytes bytes, $((bytes / json_records)) an event"
done
