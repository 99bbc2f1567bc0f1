#!/bin/sh
# Makes a virtual environment with moto's S3 server and boto3 in the given folder, once. Fails where pip cannot.
# usage: s3_server.sh FOLDER
set -eu
folder=$1
if [ -e "$folder/ready" ]; then exit 0; fi
if [ -e "$folder/failed" ]; then exit 1; fi
rm -rf "$folder"
if python3 -m venv "$folder" >/dev/null 2>&1 &&
    timeout 100 "$folder/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 10 'moto[server]==5.0.28' \
        boto3 >/dev/null 2>&1; then
    touch "$folder/ready"
else
    mkdir -p "$folder"
    touch "$folder/failed"
    exit 1
fi
