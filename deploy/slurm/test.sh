#!/usr/bin/env bash
# The tests that need a Slurm cluster: brings one up, runs them, takes it down again. Without root or
# namespaces it says so and skips them.
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

make setup
# With --workspace nothing is built that `make test` has not built.
cargo test --workspace --test it --no-run
trap '$cluster down' EXIT
$cluster up 8
cargo test --workspace --test it slurm:: -- --ignored --test-threads=1
