#!/usr/bin/env bash
# The tests that need a Slurm cluster: brings some up (CLUSTERS, 3), runs them, takes the clusters down again.
# Without root or namespaces it says so and skips them.
set -euo pipefail
cd "$(dirname "$0")/../.."
cluster=deploy/slurm/cluster.sh

skip() { echo "skipped: $1"; exit 0; }
[ "$(id -u)" = 0 ] || skip "a Slurm cluster on one machine needs root (network namespaces)"
unshare --mount --uts --ipc --pid --fork true 2>/dev/null || skip "this system gives no namespaces"
command -v apt-get >/dev/null || command -v slurmctld >/dev/null \
  || skip "there is no slurmctld here, and no apt-get to fetch it"

$cluster packages || skip "Slurm's packages cannot be fetched"
$cluster possible || skip "this system gives no bridges between network namespaces"

# With --workspace nothing is built that `make test` has not built. With TRADEWIND_BUILT in the environment the tests
# are taken as they are: cargo would wait for whoever builds something else.
make setup python .deps/torch-without-nvidia
if [ -n "${TRADEWIND_BUILT:-}" ]; then
  # Of the programs of that name, the newest that has tests of Slurm.
  built=
  while read -r one; do
    listed=$("$one" slurm:: --ignored --list)
    if grep -q ': test$' <<<"$listed"; then built=$one && break; fi
  done < <(find "$(realpath "${CARGO_TARGET_DIR:-target}")/debug/deps" -name 'it-*' -executable -printf '%T@ %p\n' | sort -nr | cut -d' ' -f2-)
  [ -n "$built" ] || { echo "slurm-test: TRADEWIND_BUILT is set, but target/ has no tests of Slurm: cargo test --workspace --no-run"; exit 1; }
  tests() { (cd tests && "$built" "$@"); }
else
  cargo test --workspace --test it --no-run
  tests() { cargo test --workspace --test it -- "$@"; }
fi

# Tests wait for Slurm more than they work, so several go on at once, each with a cluster of its own.
dirs=()
for i in $(seq "${CLUSTERS:-3}"); do dirs+=("/tmp/tradewind-slurm-test-$i"); done
all() { # VERB ARGUMENTS..: of all clusters at once
  local dir one pids=()
  for dir in "${dirs[@]}"; do SLURM_CLUSTER_DIR=$dir $cluster "$@" & pids+=($!); done
  for one in "${pids[@]}"; do wait "$one"; done
}
trap 'all down' EXIT
all up 8
export SLURM_CLUSTER_DIRS; SLURM_CLUSTER_DIRS=$(IFS=:; echo "${dirs[*]}")
tests slurm:: --ignored --test-threads="${#dirs[@]}"
