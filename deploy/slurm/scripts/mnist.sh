#!/bin/bash
# Run mnist: its servers and the groups that start with them. Written by `tradewind slurm render`.

# Component 0: 2 servers.
#SBATCH --job-name=mnist
#SBATCH --output=/scratch/runs/example/logs/slurm-%j.log
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --no-kill              # a node that is lost takes along only what was on it, where others are left
#SBATCH --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=4
#SBATCH hetjob
# Component 1: group 0, 4 ranks.
#SBATCH --no-kill              # a node that is lost takes along only what was on it, where others are left
#SBATCH --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=1
#SBATCH hetjob
# Component 2: group 1, 4 ranks.
#SBATCH --no-kill              # a node that is lost takes along only what was on it, where others are left
#SBATCH --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=1

set -u
tradewind=/opt/tradewind/bin/tradewind
run=/scratch/runs/example

# Each task has a secret of its own, by which a certificate is issued to it, once.
"$tradewind" slurm secrets "$run" servers=2 group-0=4 group-1=4 || exit

# A step for each component, so that the end of one is not the end of another. Each task starts its
# process again where it dies, in the same step, with the same CPUs and GPUs.
step=(srun --kill-on-bad-exit=0 --wait=0 --gpu-bind=none --no-kill)
steps=()
"${step[@]}" --het-group=0 --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=4 \
    "$tradewind" slurm task "$run" servers &
steps+=($!)
"${step[@]}" --het-group=1 --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=1 \
    "$tradewind" slurm task "$run" group 0 &
steps+=($!)
"${step[@]}" --het-group=2 --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=1 \
    "$tradewind" slurm task "$run" group 1 &
steps+=($!)

# Sees the run to its end. Before the time limit it takes a last snapshot and ends or requeues the job.
exec "$tradewind" slurm lead "$run" "${steps[@]}"
