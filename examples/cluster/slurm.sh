#!/bin/bash
# One evolution over all devices of several nodes:  sbatch examples/cluster/slurm.sh runs/coin_game
# Submitted again with the same directory, on as many nodes or on others, it goes on where it was stopped.
#SBATCH --job-name=marl
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
set -eu
run=${1:?the directory of the run}
if [ -e "$run/config.yaml" ]; then
    exec srun python -m marl.mfos --resume "$run" --cluster jax
fi
exec srun python -m marl.mfos "${2:-coin_game}" "${@:3}" --out "$run" --cluster jax
