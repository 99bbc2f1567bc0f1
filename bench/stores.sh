#!/bin/bash
# Reads from nginx over a link with a round trip: pieces of several sizes, so many at a time, by HTTP/1.1 and by HTTP/2 over TLS,
# beside a client that only takes (bench/range_limit.c); then arrays of 100 KB in a tar shard by `millrace feed`. The link
# (bench/relay.c) joins two network namespaces of this machine. Prints markdown tables: shares of the link or of what the
# round trip allows, whichever is less; medians of ROUNDS in turn.
# usage: bench/stores.sh [BUILD]     ROUND_TRIPS="20 50" MB_PER_S=125 ROUNDS=3 SECONDS_EACH=2 EPOCHS=3 ARRAYS=4000
#                                    SIZES="4096 102400 1048576 8388608" DEPTHS="1 4 16 64 256" PARTS="pieces arrays"
#                                    OPTIONS="-q --queue-depth 16", of feed
# Skips where nginx, openssl, namespaces or /dev/net/tun are not to be had.
set -eu
cd "$(dirname "$0")/.."
build=$(realpath "${1:-build/release}")
PATH=$PATH:/usr/sbin
for word in nginx:nginx-light openssl:openssl ip:iproute2 unshare:util-linux nsenter:util-linux; do
    command -v "${word%%:*}" >/dev/null || { echo "SKIP: ${word%%:*} is not here: package ${word##*:}"; exit 0; }
done
if [ -z "${STORES_WORK:-}" ]; then
    own="unshare -rn --pid --fork --kill-child --mount-proc"
    $own ip tuntap add dev relay mode tun 2>/dev/null || { echo "SKIP: no network namespaces with tun devices here"; exit 0; }
    STORES_WORK=$(mktemp -d)
    trap 'rm -rf "$STORES_WORK"' EXIT
    export STORES_WORK
    $own "$0" "$build"
    exit
fi
work=$STORES_WORK tools=$build/bench rate=${MB_PER_S:-125}
mkdir -p "$work/temp"
"$build/millrace" synth npy "$work/x.npy" --n "${ARRAYS:-4000}" --shape 25600 --dtype f32 --classes 0 -q >/dev/null
"$build/millrace" pack "npy:$work/x.npy" "$work/arrays" --shard-size 64GiB -q >/dev/null
rm "$work/x.npy"
file=arrays/shard-000000.tar
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key.pem" -out "$work/cert.pem" -days 2 -subj /CN=10.91.0.2 \
    -addext subjectAltName=IP:10.91.0.2 2>/dev/null
export CURL_CA_BUNDLE=$work/cert.pem
cat >"$work/nginx.conf" <<CONFIG
daemon off; user root; worker_processes 2; pid $work/pid; error_log $work/error.log;
events { worker_connections 8192; }
http {
  sendfile on; tcp_nopush on; root $work; keepalive_requests 100000;
  log_format one '\$connection'; access_log $work/access.log one;
  client_body_temp_path $work/temp/1; proxy_temp_path $work/temp/2; fastcgi_temp_path $work/temp/3;
  uwsgi_temp_path $work/temp/4; scgi_temp_path $work/temp/5;
  ssl_certificate $work/cert.pem; ssl_certificate_key $work/key.pem;
  server { listen 10.91.0.2:8080 backlog=4096; listen 10.91.0.2:8443 ssl http2 backlog=4096; }
}
CONFIG

pieces() { # round trip
    local size depth seconds
    for size in ${SIZES:-4096 102400 1048576 8388608}; do
        for depth in ${DEPTHS:-1 4 16 64 256}; do
            ((size * depth <= rate * 2500000)) || continue # more than 2.5 s of the link under way at a time
            seconds=$(python3 -c "print(max(${SECONDS_EACH:-2}, 4 * $size * $depth / $rate / 1e6))")
            echo "$1 $size $depth limit $("$tools/range_limit" 10.91.0.2:8080 "$file" "$bytes" "$size" "$depth" 1 "$seconds")"
            echo "$1 $size $depth http/1.1 $("$tools/store_read" "http://10.91.0.2:8080/$file" "$size" "$depth" "$seconds")"
            echo "$1 $size $depth http/2 $("$tools/store_read" "https://10.91.0.2:8443/$file" "$size" "$depth" "$seconds")"
        done
    done
}
arrays() { # round trip, name, place
    : >"$work/access.log" # nginx appends
    # shellcheck disable=SC2086  # several words
    "$build/millrace" feed "tar:$3/$file" --shuffle --epochs "${EPOCHS:-3}" --batch-size 32 --device cpu --digest --json ${OPTIONS:--q} |
        python3 -c "
import json, os, sys, time
r = json.load(sys.stdin)
time.sleep(0.2)
n = len(set(open('$work/access.log')))
warm = (r['samples'] - 32) / (r['seconds'] - r['first_batch_ms'] / 1000)
print('$1 feed 0 $2', warm, warm * r['bytes'] / r['samples'], r['first_batch_ms'], n, r['digest'], os.getloadavg()[0])"
}

bytes=$(stat -c %s "$work/$file")
for trip in ${ROUND_TRIPS:-20 50}; do
    unshare -n sh -c 'while :; do sleep 1000; done' &
    there=$!
    sleep 0.3
    rm -f "$work/in"
    mkfifo "$work/in"
    "$tools/relay" "$there" "$trip" "$rate" <"$work/in" >"$work/relay" &
    exec 9>"$work/in"
    while ! grep -q READY "$work/relay"; do sleep 0.1; done
    nsenter -t "$there" -n nginx -c "$work/nginx.conf" -p "$work" 2>/dev/null &
    server=$!
    sleep 1
    for _ in $(seq "${ROUNDS:-3}"); do
        case "${PARTS:-pieces arrays}" in *pieces*) pieces "$trip" ;; esac
        case "${PARTS:-pieces arrays}" in
            *arrays*)
                arrays "$trip" local "$work"
                arrays "$trip" http/1.1 http://10.91.0.2:8080
                arrays "$trip" http/2 https://10.91.0.2:8443
                ;;
        esac
    done
    kill "$server"
    exec 9>&-
    kill "$there"
    wait 2>/dev/null || true
    ip link del relay 2>/dev/null || true
done >"$work/results"

python3 - "$work/results" "$rate" <<'PY'
import statistics
import sys

median = statistics.median
rows = [line.split() for line in open(sys.argv[1])]
link = float(sys.argv[2]) * 1e6
for trip in dict.fromkeys(r[0] for r in rows):
    print(f"Round trip {trip} ms, link {link / 1e6:.0f} MB/s:\n")
    mine = [r for r in rows if r[0] == trip and r[1] != "feed"]
    if mine:
        print("| bytes | at a time | discarded, MB/s | HTTP/1.1 | HTTP/2 | the link allows | HTTP/1.1 / it | HTTP/2 / it |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for size, depth in dict.fromkeys((int(r[1]), int(r[2])) for r in mine):
        got = {who: median(float(r[5]) for r in mine if (int(r[1]), int(r[2]), r[3]) == (size, depth, who))
               for who in ("limit", "http/1.1", "http/2")}
        most = min(link, depth * size / (float(trip) / 1e3 + size / link))
        print(f"| {size:,} | {depth} | " + " | ".join(f"{v / 1e6:.1f}" for v in got.values()) +
              f" | {most / 1e6:.1f} | {100 * got['http/1.1'] / most:.0f}% | {100 * got['http/2'] / most:.0f}% |")
    feed = [r for r in rows if r[0] == trip and r[1] == "feed"]
    if not feed:
        continue
    if len({r[8] for r in feed}) != 1:
        sys.exit("bench: the digests differ")
    print("\n| arrays of 100 KB, shuffled | arrays/s | MB/s | of the link | connections | first batch |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for who in ("local", "http/1.1", "http/2"):
        some = [r for r in feed if r[3] == who]
        rate = median(float(r[5]) for r in some)
        share = "" if who == "local" else f"{100 * rate / link:.0f}%"
        print(f"| {who} | {median(float(r[4]) for r in some):,.0f} | {rate / 1e6:.0f} | {share} | "
              f"{median(int(r[7]) for r in some)} | {median(float(r[6]) for r in some):.0f} ms |")
    loads = [float(r[9]) for r in feed]
    print(f"\nLoad average: {min(loads):.1f} to {max(loads):.1f}.\n")
PY
