#!/usr/bin/env bash
# Measures exchanges between hosts of their own: network namespaces on this machine, each with a
# full-duplex link of a known rate to one switch. Run as root: `make bench-net`.
#
#   RATE=1gbit deploy/net/bench-net.sh    rate of every link, in mbit or gbit
#   deploy/net/bench-net.sh clean         removes what a killed run has left
#
# Only namespaces named tw-* are touched. HOSTS is the number of hosts of each kind (4), BYTES the
# size of the vector (100MB), RUNS the number of samples (7). SHORT=1 only tries it: two of the
# measurements, on a small vector. TRADEWIND_BUILT=1 takes the programs of the tests, which are there.
set -euo pipefail

RATE=${RATE:-1gbit}
SHORT=${SHORT:-}
HOSTS=${HOSTS:-${SHORT:-4}}
BYTES=${BYTES:-${SHORT:+10MB}}
BYTES=${BYTES:-100MB}
RUNS=${RUNS:-${SHORT:-7}}
BURST=${BURST:-1mb}
LATENCY=${LATENCY:-200ms}
MTU=${MTU:-9000}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
profile=${TRADEWIND_BUILT:+debug}
bin=$root/target/${profile:-release}

skip() {
	echo "bench-net: skipped, because $1"
	exit 0
}

fail() {
	echo "bench-net: $1" >&2
	exit 1
}

names() {
	local i
	echo tw-switch
	for ((i = 0; i < HOSTS; i++)); do
		echo "tw-server$i"
		echo "tw-client$i"
	done
}

# What a namespace holds goes with it: its ends of links, and with an end the other one.
remove() {
	local name
	for name in $(names); do
		ip netns delete "$name" 2>/dev/null || true
	done
}

# A host of a kind, its address, and its link, shaped at both ends.
add_host() { # kind index address
	local name=tw-$1$2 port=$1$2
	ip netns add "$name"
	ip link add eth0 netns "$name" type veth peer name "$port" netns tw-switch
	ip -n "$name" address add "$3/16" dev eth0
	ip -n "$name" link set lo up
	ip -n "$name" link set eth0 mtu "$MTU" up
	ip -n tw-switch link set "$port" mtu "$MTU" master switch up
	tc -n "$name" qdisc add dev eth0 root tbf rate "$RATE" burst "$BURST" latency "$LATENCY"
	tc -n tw-switch qdisc add dev "$port" root tbf rate "$RATE" burst "$BURST" latency "$LATENCY"
}

[[ $(id -u) == 0 ]] || skip "it makes network namespaces, for which it must run as root"
command -v ip >/dev/null || skip "ip is missing (Debian and Ubuntu: apt install iproute2)"
command -v tc >/dev/null || skip "tc is missing (Debian and Ubuntu: apt install iproute2)"
if [[ ${1:-} == clean ]]; then
	remove
	exit 0
fi
case $RATE in
*gbit) gbit=${RATE%gbit} ;;
*mbit) gbit=$(awk -v mbit="${RATE%mbit}" 'BEGIN { print mbit / 1000 }') ;;
*) fail "RATE is $RATE; give it in mbit or gbit, such as 1gbit" ;;
esac
for name in $(names); do
	[[ ! -e /run/netns/$name ]] ||
		fail "namespace $name is there already: another run, or what a killed one has left; $0 clean removes it"
done

[[ -n ${TRADEWIND_BUILT:-} ]] ||
	(cd "$root" && cargo build --release --package tradewind-bench --package tradewind-server)

results=$(mktemp -d)
bench=
cleanup() {
	trap - EXIT INT TERM
	# It ends its own processes; a namespace lives on while one of them does.
	if [[ -n $bench ]]; then
		kill "$bench" 2>/dev/null || true
		wait "$bench" 2>/dev/null || true
	fi
	remove
	rm -rf "$results"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

ip netns add tw-switch 2>/dev/null || skip "this machine does not allow network namespaces"
# Nothing to learn and no loops: ports forward at once.
ip -n tw-switch link add switch type bridge stp_state 0 forward_delay 0
ip -n tw-switch link set switch up
for ((i = 0; i < HOSTS; i++)); do
	add_host server "$i" "10.77.0.$((i + 1))"
	add_host client "$i" "10.77.1.$((i + 1))"
done

measure() { # servers clients options...
	local file=$results/${#files[@]}.json
	echo "bench-net: $1 servers, $2 clients, links of $RATE ${*:3}" >&2
	"$bin/tradewind-bench" exchange --json --servers "$1" --clients "$2" --bytes "$BYTES" \
		--seconds 1 --runs "$RUNS" --wrap 'ip netns exec tw-{role}{index}' --host '10.77.0.{index1}' \
		"${@:3}" >"$file" &
	bench=$!
	wait "$bench" || fail "the measurement failed"
	bench=
	files+=("$file")
}

files=()
measure 1 1
first=${files[0]}
for ((n = 2; n <= HOSTS; n *= 2)); do
	measure "$n" "$n" --group
done
measure 1 1 --no-floor --up int8 --down int8
if [[ -n $SHORT ]]; then
	"$bin/tradewind-bench" links --gbit "$gbit" "${files[@]}"
	exit 0
fi
measure 1 1 --no-floor --up bf16 --down bf16
measure 1 1 --no-floor --up topk
measure 1 1 --tls
# A step whose computation is as long as its exchange.
exchange=$(sed -n '/"exchange_seconds"/,/}/s/.*"p50": *\([0-9.]*\).*/\1/p' "$first")
measure 1 1 --step-seconds "$exchange" --seconds "$(awk -v s="$exchange" 'BEGIN { print 4 * s }')"
# All clients behind one link.
measure 1 64 --wrap 'ip netns exec tw-{role}0' --no-floor --bytes 4MB --seconds 4
"$bin/tradewind-bench" links --gbit "$gbit" "${files[@]}"
