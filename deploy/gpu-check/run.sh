#!/usr/bin/env bash
# Checks this machine's GPU; the report, one JSON object, goes to standard output and, after each part,
# to gpu-check.json beside this script (GPU_CHECK_OUT names another file), logs to work/ (GPU_CHECK_WORK). Needs an NVIDIA driver and a Python 3 with torch 2.11, whose
# libtorch is used: no cargo, nothing else. PYTHON names another interpreter than python3. Arguments
# are passed on; see ./bin/tradewind-gpu-check --help.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(command -v "${PYTHON:-python3}") || {
  echo "no ${PYTHON:-python3} here; name a Python with torch 2.11 as PYTHON" >&2
  exit 2
}
version=$("$python" -c 'import torch; print(torch.__version__)') || {
  echo "$python has no torch; torch 2.11 is needed (name another interpreter as PYTHON)" >&2
  exit 2
}
case $version in
  2.11.*) ;;
  *)
    echo "$python has torch $version; the programs were built for 2.11" >&2
    exit 2
    ;;
esac
cuda=$("$python" -c 'import torch; print(torch.version.cuda, ".".join(map(str, torch.cuda.nccl.version())))') || {
  echo "$python has a torch $version without CUDA; one with CUDA 13 is needed" >&2
  exit 2
}
case $cuda in
  "13."*" 2.28."*) ;;
  *)
    echo "$python has a torch for CUDA and NCCL $cuda; the programs were built for CUDA 13 and NCCL 2.28" >&2
    exit 2
    ;;
esac
lib=$("$python" -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "lib"))')
export LD_LIBRARY_PATH="$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export TRADEWIND_NCCL="$here/bin/libtradewind_nccl.so"
exec "$here/bin/tradewind-gpu-check" --data "$here/data" --configs "$here/configs" --ddp "$here/ddp.py" --python "$python" \
  --out "${GPU_CHECK_OUT:-$here/gpu-check.json}" --work "${GPU_CHECK_WORK:-$here/work}" "$@"
