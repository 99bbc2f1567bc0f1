#!/bin/bash
# Makes the wheel: dist/millrace-VERSION-cp310-abi3-manylinux_2_34_x86_64.whl. The tools come from PyPI, into build/wheel/venv.
# usage: scripts/wheel.sh        PYTHON=python3: that makes the environment
set -eu
cd "$(dirname "$0")/.."
tag=manylinux_2_34_x86_64
most_bytes=$((5 * 1000 * 1000))
work=build/wheel
log=$work/wheel.log
venv=$work/venv
mkdir -p "$work" dist

fail() {
    echo "wheel: $1" >&2
    exit 1
}

logged() { # what, command...
    local what=$1
    shift
    "$@" >>"$log" 2>&1 </dev/null || {
        tail -40 "$log" >&2
        fail "$what failed; the whole log: $log"
    }
}

# By libdeflate, which tries more than zlib: 4% smaller than zlib's level 9, which is 1.3% smaller than wheel's 6. Its version
# is pinned, so the bytes are the same each time. zipfile has no other way to choose who compresses.
recompress='
import os, sys, zipfile
import deflate

class Whole:
    def __init__(self):
        self.data = b""

    def compress(self, data):
        self.data += data
        return b""

    def flush(self):
        return deflate.deflate_compress(self.data, 12)

zipfile._get_compressor = lambda *kind: Whole()
with zipfile.ZipFile(sys.argv[1]) as packed, \
        zipfile.ZipFile(os.path.join(sys.argv[2], os.path.basename(sys.argv[1])), "w") as out:
    for info in packed.infolist():
        out.writestr(info, packed.read(info), zipfile.ZIP_DEFLATED)
with zipfile.ZipFile(sys.argv[1]) as packed, zipfile.ZipFile(out.filename) as again:
    for info in packed.infolist():
        assert again.read(info.filename) == packed.read(info), info.filename
'

# The licences of the libraries that the wheel brings along, as their Debian packages state them.
add_licences() { # folder of the unpacked wheel
    local file soname path package doc
    doc=$(echo "$1"/millrace-*.dist-info)/licenses
    mkdir -p "$doc"
    for file in "$1"/millrace.libs/*; do
        soname=$(basename "$file" | sed -E 's/-[0-9a-f]{8}//')
        path=$(ldconfig -p | awk -v so="${soname%%.so*}.so" 'index($1, so) == 1 { print $NF; exit }')
        path=$(readlink -f "$path")
        package=$(dpkg -S "$path" "${path#/usr}" 2>/dev/null | head -1 | cut -d: -f1) || true
        [ -f "/usr/share/doc/$package/copyright" ] || fail "no licence file of $soname ($path): not from a package?"
        install -m 644 "/usr/share/doc/$package/copyright" "$doc/${soname%%.so*}.txt"
    done
}

: >"$log"
echo "wheel: $log"
[ "$(uname -m)" = x86_64 ] || fail "expected an x86_64 machine, found $(uname -m)"
if [ ! -x "$venv/bin/auditwheel" ] || ! cmp -s python/requirements.txt "$venv/requirements.txt"; then
    rm -rf "$venv"
    logged "python3 -m venv (package python3-venv)" "${PYTHON:-python3}" -m venv "$venv"
    logged "pip install" "$venv/bin/pip" install --disable-pip-version-check --no-compile -r python/requirements.txt
    cp python/requirements.txt "$venv/"
fi
PATH=$PWD/$venv/bin:$PATH

rm -rf "$work/raw" "$work/repaired" "$work/unpacked" "$work/packed"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CMakeLists.txt)}"
export SOURCE_DATE_EPOCH CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}
export MILLRACE_KEPT_KERNELS=${MILLRACE_KEPT_KERNELS:-$PWD/build/kernels} # cmake/Fatbin.cmake
logged "the build" python -m build --wheel --no-isolation -o "$work/raw" -Cbuild-dir="$PWD/$work/build" python
logged "auditwheel repair" auditwheel repair --plat "$tag" -w "$work/repaired" "$work"/raw/*.whl
logged "unpacking" python -m wheel unpack -d "$work/unpacked" "$work"/repaired/*.whl
add_licences "$(echo "$work"/unpacked/*)"
# Ours, not the copies of Debian's libraries in millrace.libs.
mapfile -t ours < <(find "$work/unpacked" -path '*/millrace/*' \( -name '*.so' -o -name 'lib*.so.*' -o -path '*/_bin/millrace' \))
[ ${#ours[@]} = 6 ] || fail "expected 6 binaries to check, found ${#ours[@]}: ${ours[*]}"
scripts/hardening.sh "${ours[@]}" || fail "the wheel is not hardened"
chmod -R u=rwX,go=rX "$work/unpacked" # one of auditwheel's files has the umask's mode
rm -f dist/millrace-*.whl
mkdir -p "$work/packed"
logged "packing" python -m wheel pack -d "$work/packed" "$work"/unpacked/*
logged "compressing" python -c "$recompress" "$work"/packed/*.whl dist
logged "abi3audit" abi3audit --strict --report -o "$work/abi3audit.json" dist/millrace-*.whl

wheel=$(echo dist/millrace-*.whl)
case $wheel in
*-cp310-abi3-$tag.whl) ;;
*) fail "$wheel: expected a name that ends in -cp310-abi3-$tag.whl" ;;
esac
bytes=$(stat -c %s "$wheel")
echo "wheel: $wheel ($bytes bytes)"
[ "$bytes" -le $most_bytes ] || fail "$wheel has $bytes bytes, expected at most $most_bytes"
