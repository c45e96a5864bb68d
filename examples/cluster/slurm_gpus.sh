#!/bin/bash
# One evolution over the GPUs of several nodes, one process for each GPU:
#   sbatch examples/cluster/slurm_gpus.sh runs/coin_game coin_game_paper
# Every process sees all GPUs of its node and takes the one of its number among the tasks there.
# Submitted again with the same directory, on as many GPUs or on others, it goes on where it was stopped.
#SBATCH --job-name=marl
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --gpu-bind=none
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
set -eu
run=${1:?the directory of the run}
if [ -e "$run/config.yaml" ]; then
    exec srun python -m marl.mfos --resume "$run" --cluster jax
fi
exec srun python -m marl.mfos "${2:-coin_game}" "${@:3}" --out "$run" --cluster jax
