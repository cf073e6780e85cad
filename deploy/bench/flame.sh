#!/usr/bin/env bash
# Flame graphs of a server and a client while they exchange: where their processors' time goes.
#
#   deploy/bench/flame.sh                       100 MB between one client and one server
#   deploy/bench/flame.sh --optimizer adam      with options of `tradewind bench exchange`
#
# Writes docs/flame-server.svg and docs/flame-client.svg; FOLDER names another folder. SECONDS_EACH
# is how long is recorded (10), MIN_WIDTH the narrowest frame that is drawn, percent (0.1). The
# programs are built with frame pointers, into target/flame, so that the release build stays as it is.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
FOLDER=${FOLDER:-$root/docs}
SECONDS_EACH=${SECONDS_EACH:-10}
MIN_WIDTH=${MIN_WIDTH:-0.1}
target=$root/target/flame
bin=$target/release

fail() {
	echo "flame: $1" >&2
	exit 1
}

need() { # program, how to have it
	command -v "$1" >/dev/null || fail "$1 is missing: $2"
}

need perf "it comes with the kernel's tools (Debian: apt install linux-perf; Ubuntu: linux-tools-generic)"
need inferno-collapse-perf "cargo install inferno"
need inferno-flamegraph "cargo install inferno"

work=$(mktemp -d)
bench=
cleanup() {
	trap - EXIT INT TERM
	# It ends its own processes.
	if [[ -n $bench ]]; then
		kill "$bench" 2>/dev/null || true
		wait "$bench" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

perf record --quiet --event cpu-clock --output "$work/probe" -- true 2>"$work/error" ||
	fail "perf may not record: $(tail -n 1 "$work/error"); kernel.perf_event_paranoid must be at most 2, 1 with the kernel's frames"

(cd "$root" && RUSTFLAGS="-C force-frame-pointers=yes" CFLAGS="-fno-omit-frame-pointer" \
	cargo build --release --package tradewind-bench --package tradewind-server --target-dir "$target")

"$bin/tradewind-bench" exchange --no-floor --seconds 1 --runs 1000 --json "$@" >"$work/result" 2>"$work/log" &
bench=$!

# The processes of the bench are its children.
child() { # word of the command line
	local pid
	for pid in $(pgrep -P "$bench" || true); do
		if tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q -- "$1"; then
			echo "$pid"
			return
		fi
	done
}

server= client=
for ((tries = 0; tries < 100; tries++)); do
	kill -0 "$bench" 2>/dev/null || fail "the bench has ended: $(cat "$work/log")"
	server=$(child tradewind-server) client=$(child 'tradewind-bench client')
	[[ -z $server || -z $client ]] || break
	sleep 0.1
done
[[ -n $server && -n $client ]] || fail "the bench has started no server and client"
# Joining and creating values are over by then.
sleep 2

recordings=()
for role in server client; do
	perf record --quiet --event cpu-clock --freq 499 --call-graph fp --pid "${!role}" \
		--output "$work/$role.data" -- sleep "$SECONDS_EACH" 2>"$work/$role.log" &
	recordings+=($!)
done
for recording in "${recordings[@]}"; do
	wait "$recording" || fail "perf failed: $(cat "$work"/*.log)"
done
kill "$bench" && wait "$bench" 2>/dev/null || true
bench=

mkdir -p "$FOLDER"
for role in server client; do
	perf script --input "$work/$role.data" 2>/dev/null | inferno-collapse-perf 2>/dev/null >"$work/$role.folded"
	[[ -s $work/$role.folded ]] || fail "perf has recorded nothing of the $role"
	inferno-flamegraph --title "$role of an exchange" --minwidth "$MIN_WIDTH" --hash \
		"$work/$role.folded" >"$work/$role.svg"
	mv "$work/$role.svg" "$FOLDER/flame-$role.svg"
	echo "flame: $FOLDER/flame-$role.svg"
done
