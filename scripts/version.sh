#!/bin/sh
# Prints the version, as the public header has it: 0.1.0.
sed -nE 's/^#define MR_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)$/\2/p' "$(dirname "$0")/../include/millrace/version.h" | paste -sd.
