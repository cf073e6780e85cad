#!/bin/bash
# A real Slurm cluster (munged + slurmctld + N slurmd) on one machine, from Debian's packages. Run as root.
#   up [N]           start N nodes n1..nN (default 8) and wait until all are idle        down   stop and delete everything
#   packages         only fetch what it needs                  possible            whether the kernel has what a cluster's network needs
#   env              print exports: eval "$(deploy/slurm/cluster.sh env)"                       status sinfo + squeue
#   run CMD..        run CMD on the head (with `env` loaded, sbatch, srun, squeue.. need no "run")
#   off|on NODE      power a node off (cable cut, then every process on it killed) or on again
#   cut|uncut NODE   unplug or plug the node's cable only (netns mode)
#   kill-slurmd|start-slurmd NODE   SIGKILL only that slurmd (its slurmstepds and tasks live on), or start it again
# Settings: SLURM_CLUSTER_DIR (all state, logs, pids), SLURM_CLUSTER_NET=netns|host, SLURM_CLUSTER_CPUS (128 a
#   node, whatever the machine has), SLURM_CLUSTER_GPUS (4 a node) on the nodes from SLURM_CLUSTER_GPU_FROM (the second half) on, SLURM_CLUSTER_EXTRA (slurm.conf lines).
# netns: every node has its own network namespace, address (10.77.0.<i>), port space and link. host: all share 127.0.0.1.
# In both, each node has its own hostname, /etc/hosts, /dev/shm, PID namespace and process 1; the file system is shared.
set -euo pipefail
D=${SLURM_CLUSTER_DIR:-/tmp/tradewind-slurm}
TAG=tw$(cksum <<<"$D" | cut -c1-4)             # prefix of the names of this cluster's network namespaces
[ -r "$D/settings" ] && . "$D/settings"           # a running cluster keeps the settings it was started with
NET=${NET:-${SLURM_CLUSTER_NET:-netns}}
export SLURM_CONF=$D/etc/slurm.conf

die() { echo "slurm cluster: $*" >&2; exit 1; }
addr() { [ "$NET" = host ] && echo 127.0.0.1 || echo "10.77.0.$1"; }
alive() { [ -s "$D/run/$1.pid" ] && grep -qsa "$D" "/proc/$(cat "$D/run/$1.pid")/cmdline"; }
slay() { if alive "$1"; then kill -9 "$(cat "$D/run/$1.pid")"; while alive "$1"; do sleep .05; done; fi; rm -f "$D/run/$1.pid"; }
initpid() { alive "$1" || die "$1 is not up"; local p; p=$(cat "$D/run/$1.pid"); p=$(cat "/proc/$p/task/$p/children"); echo "${p%% *}"; }
inside() { local p; p=$(initpid "$1"); shift; exec nsenter -t "$p" -m -u -n -p -W "$PWD" -- "$@"; }    # run a command on a node
cable() { [ "$NET" = host ] || ip -n "$TAG-head" link set "v${1#n}" "$2"; }
slurmd_cmd() { echo "env -u SLURM_CONF slurmd -f $SLURM_CONF -N $1"; }

host() {    # host NAME COMMAND: boot NAME: its own namespaces, a process 1 that reaps orphans, then COMMAND
    local net=; [ "$NET" = host ] || net="nsenter --net=/run/netns/$TAG-$1"
    setsid $net unshare --mount --uts --ipc --pid --kill-child --mount-proc bash -c '
        hostname "$1"; mount --bind "$2/etc/hosts" /etc/hosts; mount -t sysfs sysfs /sys; mount -t tmpfs tmpfs /dev/shm; eval "$3"
        while :; do sleep 3600 & wait $!; done' bash "$1" "$D" "$2" </dev/null >>"$D/log/$1.console" 2>&1 &
    echo $! > "$D/run/$1.pid"
}

packages() {
    type munged slurmctld slurmd srun ip >/dev/null 2>&1 && return
    # policy-rc.d: no daemon starts by itself at installation
    local rc=/usr/sbin/policy-rc.d; [ -e $rc ] || { printf '#!/bin/sh\nexit 101\n' > $rc; chmod +x $rc; trap 'rm -f /usr/sbin/policy-rc.d' EXIT; }
    local apt="apt-get -qq -o DPkg::Lock::Timeout=300" log; log=$(mktemp); $apt update || true
    DEBIAN_FRONTEND=noninteractive $apt install -y --no-install-recommends munge slurmctld slurmd slurm-client iproute2 \
        >"$log" 2>&1 || { tail -n 20 "$log" >&2; die "apt-get could not install Slurm; all it said is in $log"; }
    rm "$log"
}

configure() {
    local i gres gpus=${SLURM_CLUSTER_GPUS:-4} from=${SLURM_CLUSTER_GPU_FROM:-$((N / 2 + 1))} cpus=${SLURM_CLUSTER_CPUS:-128}
    (umask 077; head -c 128 /dev/urandom > "$D/etc/munge.key")
    { echo "# tradewind-slurm"; echo "127.0.0.1 localhost"; echo "$(addr 254) head"; for i in $(seq "$N"); do echo "$(addr "$i") n$i"; done; } > "$D/etc/hosts"
    for i in $(seq 0 $((gpus - 1))); do mknod -m 666 "$D/dev/nvidia$i" c 1 3; done      # fake GPUs: twins of /dev/null
    echo AutoDetect=off > "$D/etc/gres.conf"; echo CgroupPlugin=cgroup/v1 > "$D/etc/cgroup.conf"; : > "$D/etc/plugstack.conf"
    cat > "$SLURM_CONF" <<END
ClusterName=$TAG
SlurmctldHost=head($(addr 254))
SlurmctldPort=17000
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$D/run/munge.sock,cred_expire=10
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=$D/run/slurmctld.own.pid
SlurmdPidFile=$D/run/%n.own.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
PlugStackConfig=$D/etc/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$D/log/jobcomp.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0
SlurmdTimeout=6
TCPTimeout=1
MessageTimeout=5
KillWait=5
MinJobAge=3600
ReturnToService=1
$(for i in $(seq "$N"); do
    gres=Feature=cpu; if [ "$gpus" -gt 0 ] && [ "$i" -ge "$from" ]; then    # Weight: CPU-only components leave GPU nodes free
        gres="Feature=gpu Gres=gpu:$gpus Weight=10"; echo "NodeName=n$i Name=gpu File=$D/dev/nvidia[0-$((gpus - 1))]" >> "$D/etc/gres.conf"; fi
    echo "NodeName=n$i NodeAddr=$(addr "$i") Port=$((17000 + i)) Sockets=1 CoresPerSocket=$cpus RealMemory=4000 $gres"
done)
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
${SLURM_CLUSTER_EXTRA:-}
END
}

network() {                                      # a bridge inside the head's namespace, one veth pair per node
    [ "$NET" = netns ] || return 0
    local h=$TAG-head n i
    ip netns add "$h"; ip -n "$h" link set lo up
    ip -n "$h" link add br0 type bridge; ip -n "$h" addr add "$(addr 254)/24" dev br0; ip -n "$h" link set br0 up
    for i in $(seq "$N"); do
        n=$TAG-n$i; ip netns add "$n"; ip -n "$n" link set lo up
        ip -n "$h" link add "v$i" type veth peer name eth0 netns "$n"; ip -n "$h" link set "v$i" master br0 up
        ip -n "$n" addr add "$(addr "$i")/24" dev eth0; ip -n "$n" link set eth0 up
    done
}

possible() {                                     # with names of its own, which are gone afterwards
    local n=$TAG-try
    ip netns add "$n" && ip -n "$n" link add br0 type bridge && ip -n "$n" link add v0 type veth peer name v1
    local rc=$?; ip netns del "$n" 2>/dev/null; return $rc
}

up() {
    [ "$(id -u)" = 0 ] || die "run as root (namespaces, mknod)"
    if alive head; then echo "already up: $N nodes in $D"; return; fi
    down; N=${1:-8} NET=${SLURM_CLUSTER_NET:-netns}
    umask 022; mkdir -p "$D"/{etc,dev,run,log,bin,spool,state}; printf 'N=%s\nNET=%s\n' "$N" "$NET" > "$D/settings"
    packages; configure; network
    munged --force --socket="$D/run/munge.sock" --key-file="$D/etc/munge.key" --pid-file="$D/run/munged.pid" \
        --log-file="$D/log/munged.log" --seed-file="$D/run/munged.seed"
    host head "slurmctld -c -f $SLURM_CONF"
    local i c; for i in $(seq "$N"); do host "n$i" "$(slurmd_cmd "n$i")"; done
    for c in sbatch srun salloc scancel scontrol squeue sinfo sattach sbcast sstat sprio sdiag; do      # clients for use from outside
        printf '#!/bin/sh\ngrep -q "^# tradewind-slurm" /etc/hosts && exec /usr/bin/%s "$@"\nSLURM_CLUSTER_DIR=%q exec %q run %s "$@"\n' \
            "$c" "$D" "$(realpath "$0")" "$c" > "$D/bin/$c"
    done; chmod +x "$D"/bin/*
    for i in $(seq 240); do
        [ "$( (inside head timeout 5 sinfo -h -t idle -o %D) 2>/dev/null)" = "$N" ] && { echo "up: $N idle nodes in $D"; return; }
        sleep .25
    done
    (inside head sinfo -N -o '%N %T %E') || true
    tail -n 20 "$D"/log/*.log >&2; die "not all nodes became idle, see $D/log"
}

down() {
    [ ! -e "$D" ] || [ -e "$D/settings" ] || [ -z "$(ls -A "$D")" ] || die "$D is not a cluster's directory"
    local i ns; for i in $(seq "${N:-0}"); do slay "n$i"; done; slay head; slay munged
    for ns in $(ip netns list 2>/dev/null | awk -v p="$TAG-" 'index($1, p) == 1 {print $1}'); do ip netns del "$ns"; done
    rm -rf "$D"
}

case ${1:-} in
    up) up "${2:-}";;
    down) down;;
    packages) packages;;
    possible) possible;;
    env) printf 'export SLURM_CONF=%q SLURM_CLUSTER_DIR=%q PATH=%q:$PATH\n' "$SLURM_CONF" "$D" "$D/bin";;
    run) shift; inside head "$@";;
    status) (inside head sinfo -N -o '%N %T %c %G %E'); inside head squeue -o '%.10i %.9j %.4t %.10M %R';;
    off) cable "$2" down; slay "$2";;            # cable first: peers see silence, as with a real power failure, not FIN or RST
    on) cable "$2" up; alive "$2" || host "$2" "$(slurmd_cmd "$2")";;
    cut|uncut) cable "$2" "$([ "$1" = cut ] && echo down || echo up)";;
    kill-slurmd) kill -9 "$(pgrep -P "$(initpid "$2")" -x slurmd)";;
    start-slurmd) nsenter -t "$(initpid "$2")" -m -u -i -n -p -- $(slurmd_cmd "$2");;
    *) sed -n '2,13p' "$0"; exit 2;;
esac
