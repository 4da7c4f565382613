#!/bin/bash
# How long it takes from pip install to the first private decision on two CSV files, and prints both times.
#
#   stopwatch.sh WHAT [FEDERATION_FILE]
#
# WHAT is what pip is to install: a wheel or the folder of the source, with the extra http, such as
# 'dist/hiddenarm-0.1.0-cp311-cp311-manylinux_2_17_x86_64.whl[http]' or '.[http]'.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) what=$1 file=$(realpath "${2:-$here/travel/federation.toml}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
SECONDS=0
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "$what"
echo "installed after $SECONDS s"
PATH="$folder/venv/bin:$PATH" "$here/travel/run.sh" "$folder/run" "$file" 1 | grep "first private decision" | cut -d: -f1
echo "from nothing to the first private decision: $SECONDS s"
