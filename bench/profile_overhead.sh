#!/bin/sh
# What recording costs on this machine's GPU: see profile_overhead.py.
# usage: profile_overhead.sh PROGRAM PYTHON [OUT.json] [RECORDINGS]      MNIST=FOLDER: real digits
set -eu
program=${1:?"usage: profile_overhead.sh PROGRAM PYTHON [OUT.json] [RECORDINGS]"}
python=${2:?"usage: profile_overhead.sh PROGRAM PYTHON [OUT.json] [RECORDINGS]"}
here=$(cd "$(dirname "$0")" && pwd)
set -- --millrace "$program" ${3:+--out "$3"} ${4:+--keep "$4"}
exec "$python" "$here/profile_overhead.py" "$@"
