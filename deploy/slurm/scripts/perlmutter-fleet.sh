#!/bin/bash
# Servers of many runs. Written by `tradewind slurm render`.

# Component 0: 4 servers.
#SBATCH --job-name=resnet50-perlmutter
#SBATCH --output=/scratch/runs/example/logs/slurm-%j.log
#SBATCH --open-mode=append
#SBATCH --signal=TERM@30
#SBATCH --requeue
#SBATCH --no-kill              # a node that is lost takes along only what was on it, where others are left
#SBATCH --time=06:00:00
#SBATCH --nodes=4 --ntasks=4 --ntasks-per-node=1 --cpus-per-task=32
#SBATCH --account=m1234
#SBATCH --constraint=cpu
#SBATCH --qos=regular

module load nccl
export NCCL_SOCKET_IFNAME=hsn
export NCCL_NET='AWS Libfabric'
set -u
tradewind=/opt/tradewind/bin/tradewind
run=/scratch/runs/example

# Each task has a secret of its own, by which a certificate is issued to it, once.
"$tradewind" slurm secrets "$run" servers=4 || exit
trap '"$tradewind" slurm secrets "$run" --over' EXIT

# A step for each component, so that the end of one is not the end of another. Each task starts its
# process again where it dies, in the same step, with the same CPUs and GPUs.
step=(srun --kill-on-bad-exit=0 --wait=0 --gpu-bind=none --no-kill)
"${step[@]}" --nodes=4 --ntasks=4 --ntasks-per-node=1 --cpus-per-task=32 \
    "$tradewind" slurm task "$run" servers &

wait
