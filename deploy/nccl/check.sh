#!/usr/bin/env bash
# Whether target/nccl/libtradewind_nccl.so can be loaded, on a machine without a GPU: every symbol
# that it needs must be in the libtorch_cuda of the pinned version, in what that one needs, or in
# the libraries of C and C++. NCCL is not here: what libtorch_cuda itself asks it for is taken to be there. Called with the folder of libtorch's libraries.
set -euo pipefail

half=target/nccl/libtradewind_nccl.so
lib=$1
fail() { printf '\n%s\n\n' "$1" >&2; exit 1; }
[ -f $half ] || fail "no $half: run \`make nccl\`"
[ -f "$lib/libtorch_cuda.so" ] || fail "no libtorch_cuda.so in $lib: this libtorch was built without CUDA"

runtime=$(compgen -G "$lib/../../nvidia/*/lib/libcudart.so.*" || compgen -G "${CUDA_HOME:-/usr/local/cuda}/lib64/libcudart.so.*" || true)
[ -n "$runtime" ] || fail "no libcudart.so beside $lib (nvidia/*/lib) or in \$CUDA_HOME/lib64"
system=$(ldd $half | awk '$3 ~ /^\// { print $3 }')

# The names without their versions, which only the system's libraries give.
defined() { nm -D --defined-only "$@" 2> /dev/null | awk 'NF == 3 { print $3 }' | sed 's/@.*//' | sort -u; }
needed() { nm -D --undefined-only $half | awk '$1 == "U" { print $2 }' | sed 's/@.*//' | sort -u; }
nccl() { nm -D --undefined-only "$lib/libtorch_cuda.so" | awk '$2 ~ /^nccl/ { print $2 }' | sed 's/@.*//'; }
# missing library…: what no library of them has, nor NCCL.
missing() { comm -23 <(needed) <({ defined "$@"; nccl; } | sort -u); }

others=("$lib/libtorch_cpu.so" "$lib/libc10.so" "$lib/libc10_cuda.so" $runtime $system)
# The check must be able to fail: without libtorch_cuda it has to miss the class itself.
missing "${others[@]}" | grep -q 'ProcessGroupNCCLC' \
  || fail "the check finds nothing: without libtorch_cuda.so c10d::ProcessGroupNCCL's constructor should be missing"
absent=$(missing "$lib/libtorch_cuda.so" "${others[@]}" | c++filt)
[ -z "$absent" ] || fail "$half needs what libtorch 2.11.0 has not:
$absent"
printf '[tradewind] all %s symbols that %s needs are there\n' "$(needed | wc -l)" $half
