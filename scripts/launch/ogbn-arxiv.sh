#!/usr/bin/env bash
#SBATCH --job-name=gnnpar-ogbn-arxiv
# ogbn-arxiv: GCNII, 16 layers; common.sh tells how to call it.
set -euo pipefail
root=${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/../..} # Slurm runs a copy of this file
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$root/scripts/launch/common.sh"

launch dataset=ogbn-arxiv system=gnnpipe \
    model=gcnii model.num_layers=16 model.dropout=0.1 batch.num_chunks=16 \
    train.lr=0.005 train.weight_decay=0 train.num_epochs=500 "$@"
