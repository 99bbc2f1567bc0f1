#!/bin/sh
# Makes a virtual environment with moto's S3 server in the given folder, once; says so where pip cannot.
# usage: s3_server.sh FOLDER
set -eu
folder=$1
if [ -e "$folder/ready" ]; then exit 0; fi
rm -rf "$folder"
if python3 -m venv "$folder" >/dev/null 2>&1 &&
    timeout 150 "$folder/bin/pip" install -q --no-compile --disable-pip-version-check --retries 1 --timeout 10 \
        'moto[s3]==5.0.28' flask flask-cors >/dev/null 2>&1; then
    touch "$folder/ready"
else
    echo "SKIP a real S3 server: pip cannot install moto[s3] here"
fi
