#!/usr/bin/env bash
# Usage: torch-without-nvidia.sh PYTHON FOLDER
#
# Lets the torch of PYTHON be imported on a machine without a GPU where NVIDIA's libraries (3 GB) are not
# installed: FOLDER is filled with empty libraries of the names that are missing, and with a sitecustomize.py
# that has them bound when they are called, which is never. For tests; users install torch as it is.
#
#   LD_LIBRARY_PATH=FOLDER PYTHONPATH=FOLDER python -c 'import torch'
set -euo pipefail
python=$1 folder=$2
site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$folder"
missing() { # the names that libraries of torch ask for and that nobody has
  readelf -d "$site"/torch/lib/*.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u |
    grep -E '^lib(cu|nv|nccl)' |
    while read -r name; do
      ls "$site"/torch/lib/"$name" "$site"/nvidia/*/lib/"$name" >/dev/null 2>&1 || echo "$name"
    done
}
for name in $(missing); do
  echo | gcc -shared -x c -Wl,-soname,"$name" -o "$folder/$name" -
done
for library in "$site"/nvidia/*/lib/*.so*; do
  [ ! -e "$library" ] || ln -sf "$library" "$folder/"
done
cat >"$folder/sitecustomize.py" <<'END'
import os
import sys

sys.setdlopenflags(os.RTLD_LAZY)
END
