#!/bin/bash
# More groups for run resnet50-perlmutter; they leave when this job ends. Written by `tradewind slurm render`.

# Component 0: group 2, 8 ranks.
#SBATCH --job-name=resnet50-perlmutter
#SBATCH --output=/scratch/runs/example/logs/slurm-%j.log
#SBATCH --open-mode=append
#SBATCH --signal=TERM@30
#SBATCH --no-requeue
#SBATCH --dependency=after:4711
#SBATCH --no-kill              # a node that is lost takes along only what was on it, where others are left
#SBATCH --time=06:00:00
#SBATCH --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=32 --gpus-per-task=1
#SBATCH --account=m1234
#SBATCH --constraint=gpu
#SBATCH --qos=regular
#SBATCH hetjob
# Component 1: group 3, 8 ranks.
#SBATCH --no-kill              # a node that is lost takes along only what was on it, where others are left
#SBATCH --time=06:00:00
#SBATCH --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=32 --gpus-per-task=1
#SBATCH --account=m1234
#SBATCH --constraint=gpu
#SBATCH --qos=regular

module load nccl
export NCCL_SOCKET_IFNAME=hsn
export NCCL_NET='AWS Libfabric'
set -u
tradewind=/opt/tradewind/bin/tradewind
run=/scratch/runs/example

# Each task has a secret of its own, by which a certificate is issued to it, once.
"$tradewind" slurm secrets "$run" group-2=8 group-3=8 || exit
trap '"$tradewind" slurm secrets "$run" --over' EXIT

# A step for each component, so that the end of one is not the end of another. Each task starts its
# process again where it dies, in the same step, with the same CPUs and GPUs.
step=(srun --kill-on-bad-exit=0 --wait=0 --gpu-bind=none --no-kill)
"${step[@]}" --het-group=0 --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=32 --gpus-per-task=1 \
    "$tradewind" slurm task "$run" group 2 &
"${step[@]}" --het-group=1 --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=32 --gpus-per-task=1 \
    "$tradewind" slurm task "$run" group 3 &

wait
