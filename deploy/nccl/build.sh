#!/usr/bin/env bash
# Builds target/nccl/libtradewind_nccl.so, the part of the c10d bridge that speaks NCCL, on a
# machine that needs neither GPU nor CUDA. `make nccl` calls it, in the repository's folder, with
# libtorch's include folder and the folder of its libraries.
#
# Headers: libtorch's own; those of CUDA from $CUDA_HOME if it is set, and nccl.h from there or from
# $NCCL_HOME; else those of NVIDIA's Python wheels that torch 2.11.0 wants, of which .deps/nvidia
# keeps the few that are read (the wheel of NCCL is 200 MB, its headers are less than one).
set -euo pipefail

torch=$1
out=target/nccl
python=.deps/venv/bin/python
fail() { printf '\n%s\n\n' "$1" >&2; exit 1; }

[ -f "$torch/torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp" ] \
  || fail "no torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp in $torch: this libtorch was built without CUDA; \`make setup\` without LIBTORCH fetches one with it"
compiler=${CXX:-g++}
command -v "$compiler" > /dev/null || fail "no C++ compiler: $compiler was not found (set CXX)"

# wheel name==version folder…: unpacks folders of the wheel's nvidia/ into .deps/nvidia.
wheel() {
  local stamp=.deps/nvidia/$1.stamp folders=("${@:2}") at
  [ -f "$stamp" ] && return
  printf '[tradewind] fetching the headers of %s\n' "$1"
  at=$(mktemp -d)
  trap 'rm -rf "$at"' RETURN
  $python -m pip download --quiet --disable-pip-version-check --no-deps --dest "$at" "$1" \
    || fail "NVIDIA's wheel $1 cannot be had: set CUDA_HOME to a CUDA toolkit, and NCCL_HOME to a folder with include/nccl.h"
  $python - "$at" "${folders[@]}" <<'PY'
import glob, sys, zipfile
at, folders = sys.argv[1], tuple("nvidia/" + f for f in sys.argv[2:])
for wheel in glob.glob(at + "/*.whl"):
    with zipfile.ZipFile(wheel) as parts:
        names = [name for name in parts.namelist() if name.startswith(folders)]
        assert names, f"{wheel} holds nothing of {folders}"
        for name in names:
            parts.extract(name, ".deps")
PY
  touch "$stamp"
}

includes=()
if [ -n "${CUDA_HOME:-}" ]; then
  [ -f "$CUDA_HOME/include/cuda_runtime_api.h" ] \
    || fail "CUDA_HOME is $CUDA_HOME, where include/cuda_runtime_api.h is not; unset it to use the headers of NVIDIA's wheels"
  for folder in ${NCCL_HOME:+"$NCCL_HOME/include"} "$CUDA_HOME/include" "$CUDA_HOME/include/cccl"; do
    includes+=(-isystem "$folder")
  done
  [ -f "${NCCL_HOME:-$CUDA_HOME}/include/nccl.h" ] || [ -f /usr/include/nccl.h ] \
    || fail "no nccl.h in ${NCCL_HOME:-$CUDA_HOME}/include: set NCCL_HOME to a folder with include/nccl.h, or unset CUDA_HOME to use the headers of NVIDIA's wheels"
else
  [ -x $python ] || fail "no Python environment in .deps/venv: run \`make setup\`, or set CUDA_HOME"
  mkdir -p .deps/nvidia
  wheel nvidia-cuda-runtime==13.0.96 cu13/include
  wheel nvidia-cuda-crt==13.0.88 cu13/include/crt
  wheel nvidia-cuda-cccl==13.0.85 cu13/include/cccl/nv
  wheel nvidia-nccl-cu13==2.28.9 nccl/include
  includes=(
    -isystem .deps/nvidia/nccl/include
    -isystem .deps/nvidia/cu13/include
    -isystem .deps/nvidia/cu13/include/cccl)
fi

mkdir -p $out
# Nothing is linked: libtorch_cuda and what it needs are there when the library is loaded.
"$compiler" -std=c++17 -O2 -fPIC -shared -Wall -Wextra -Werror -fvisibility-inlines-hidden \
  -DUSE_C10D_NCCL -D_GLIBCXX_USE_CXX11_ABI=1 \
  -isystem "$torch" -isystem "$torch/torch/csrc/api/include" "${includes[@]}" \
  -idirafter worker/csrc/cuda \
  -o $out/libtradewind_nccl.so.new worker/csrc/nccl.cpp
mv $out/libtradewind_nccl.so.new $out/libtradewind_nccl.so
printf '[tradewind] %s is built\n' $out/libtradewind_nccl.so
