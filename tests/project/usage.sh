#!/bin/sh
# Scripts that want arguments say so: without any they print their usage and exit with 2, before they make anything.
# usage: usage.sh SOURCE
set -u
failed=0
for script in abi.sh bare.sh build.sh deb.sh dist.sh hardening.sh sbom.py soak.py source.sh test.sh; do
    printed=$("$1/scripts/$script" 2>&1 </dev/null)
    code=$?
    if [ $code != 2 ] || ! echo "$printed" | grep -q '^usage: '; then
        echo "scripts/$script: exit status $code, and printed: $printed"
        failed=1
    fi
done
exit $failed
