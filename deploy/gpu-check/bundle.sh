#!/usr/bin/env bash
# Puts everything that checks a GPU machine into FOLDER and FOLDER.tar.gz: bundle.sh FOLDER. Called by
# `make gpu-check`, which has built what is in it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
folder=$1
archive=$folder.tar.gz
readonly MOST=60000000

rm -rf "$folder" "$archive"
mkdir -p "$folder/bin" "$folder/data" "$folder/configs"
for program in tradewind tradewind-server tradewind-worker tradewind-gpu-check; do
  strip -o "$folder/bin/$program" "target/release/$program"
  chmod 755 "$folder/bin/$program"
done
strip -o "$folder/bin/libtradewind_nccl.so" target/nccl/libtradewind_nccl.so
cp .deps/data/{A1B,E1}_north_america.nc "$folder/data/"
cp deploy/configs/resnet50.toml "$folder/configs/"
cp deploy/gpu-check/{run.sh,ddp.py} "$folder/"
tar -C "$(dirname "$folder")" -c "$(basename "$folder")" | gzip -9 >"$archive"

needs() {
  objdump -T "$folder"/bin/* | grep -o "$1_[0-9.]*" | sort -Vu | tail -1
}
size=$(stat -c %s "$archive")
echo "$archive: $((size / 1000000)) MB; needs $(needs GLIBC) and $(needs GLIBCXX) or newer, x86-64 as built here"
if ((size > MOST)); then
  echo "that is more than $((MOST / 1000000)) MB:" >&2
  du -ab "$folder" | sort -n | tail -8 >&2
  exit 1
fi
