#!/usr/bin/env bash
# Runs a command where the servers of a run have a full-duplex link of a known rate: in a network
# namespace of its own, on whose loopback interface all that goes to or comes from SERVER is held
# to RATE, each way. Run as root:
#
#   deploy/net/shaped-loopback.sh 20mbit tradewind run run.toml --set cluster.host=127.0.0.2
#
# Everybody else on 127.0.0.1 has the whole speed of the machine; the namespace ends with the command.
set -euo pipefail

SERVER=${SERVER:-127.0.0.2}
MTU=${MTU:-1500}

if [[ ${1:-} != --inside ]]; then
	if (($# < 2)); then
		sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
		exit 64
	fi
	[[ $(id -u) == 0 ]] || { echo "shaped-loopback: it makes a network namespace, for which it must run as root" >&2; exit 1; }
	for program in ip tc; do
		command -v $program >/dev/null || { echo "shaped-loopback: $program is missing (Debian and Ubuntu: apt install iproute2)" >&2; exit 1; }
	done
	exec unshare --net "$0" --inside "$@"
fi

rate=$2
shift 2
ip link set lo mtu "$MTU" up
# Packets are shaped as they leave, so both ways are queues of the same interface. Without segmentation
# by the interface each is of the size that a network would carry.
tc qdisc add dev lo root handle 1: htb default 30
for way in 10:dst 20:src; do
	class=1:${way%:*}
	tc class add dev lo parent 1: classid "$class" htb rate "$rate" burst 3000 cburst 3000 quantum "$MTU"
	tc qdisc add dev lo parent "$class" pfifo limit 20000
	tc filter add dev lo parent 1: protocol ip u32 match ip "${way#*:}" "$SERVER/32" flowid "$class"
done
tc class add dev lo parent 1: classid 1:30 htb rate 100gbit quantum 60000
exec "$@"
