#!/usr/bin/env bash
# Usage: build.sh TORCH_LIB FOLDER
#
# Fills FOLDER with libraries that stand in for NVIDIA's where there is no GPU: with them loaded first,
# the libtorch_cuda.so in TORCH_LIB works on GPUs that are played in main memory (gpu.h).
#
#   LD_PRELOAD=$(echo FOLDER/lib*.so.* | tr ' ' :) PROGRAM
#
# Each has the name, the versions and the symbols that libtorch asks for, so that all of them are bound at
# once. What is not played ends the process where it is called, and says so. Status 77: CUDA's headers are
# missing.
set -euo pipefail
lib=$1 out=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
headers=
for folder in "$lib"/../../nvidia/*/include ${CUDA_HOME:+"$CUDA_HOME/include"}; do
  [ ! -f "$folder/cuda_runtime_api.h" ] || headers=$folder
done
[ -n "$headers" ] || { echo "no cuda_runtime_api.h in $lib/../../nvidia/*/include, where NVIDIA's wheels have it: set CUDA_HOME to a CUDA toolkit" >&2; exit 77; }
mkdir -p "$out"
# Put in place when they are whole: others may be using those that are there.
new=$(mktemp -d "$out/new.XXXXXX")
trap 'rm -rf "$new"' EXIT

# CUPTI is a profiler's, and libtorch comes with it.
needed=$(readelf -d "$lib"/lib{torch,c10,caffe2}*.so | sed -n 's/.*(NEEDED).*\[\(lib\(cu\|nv\|nccl\).*\)\]/\1/p' | grep -v '^libcupti' | sort -u)
# Lines of a symbol and its version, which is the library's name but for that of NVSHMEM. A few libraries
# have no versions; their symbols are found wherever they are.
symbols=$(nm -D --undefined-only "$lib"/lib{torch,c10,caffe2}*.so | awk '$1 == "U" { print $2 }' |
  grep -E '@lib|@NVSHMEM|^cu(da)?[A-Z]|^cusparseLt|^nccl' | sort -u | tr @ ' ')

for library in $needed; do
  case $library in
    libcuda.so.1) version='' pattern='^cu' played=(driver.c) with=() ;;
    libnccl.so.2) version='' pattern='^nccl' played=(nccl.c) with=("$new/libcuda.so.1") ;;
    libcudart.so.13) version=$library pattern='' played=(runtime.c memory.c kernels.c) with=("$new/libcuda.so.1") ;;
    libnvshmem_host.so.3) version=NVSHMEM pattern='' played=() with=() ;;
    *) version=$library pattern='' played=() with=() ;;
  esac
  {
    printf '_Noreturn void not_played(const char *function);\n'
    # Weak, so that what is played takes their place.
    awk -v version="$version" -v pattern="$pattern" '$2 == version && (version != "" || $1 ~ pattern) {
      printf "__attribute__((weak)) void %s(void) { not_played(\"%s\"); }\n", $1, $1 }' <<<"$symbols"
  } >"$new/others.c"
  flags=("-Wl,-soname,$library" "-Wl,--no-as-needed")
  if grep -q " $version\$" <<<"$symbols" && [ -n "$version" ]; then
    echo "$version { global: *; };" >"$new/versions"
    flags+=("-Wl,--version-script=$new/versions")
  fi
  cc -shared -fPIC -O1 -g -Wall -Wextra -Werror -Wno-unused-parameter -isystem "$headers" -isystem "$here" \
    -o "$new/$library" "${flags[@]}" "$new/others.c" "${played[@]/#/$here/}" "${with[@]}"
done
mv "$new"/lib*.so.* "$out"
