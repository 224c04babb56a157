#!/usr/bin/env bash
#SBATCH --job-name=gnnpar-ogbn-proteins
# ogbn-proteins: residual GCN, 16 layers, ROC-AUC over its 112 labels; common.sh tells how to call it.
set -euo pipefail
root=${SLURM_SUBMIT_DIR:-$(dirname "${BASH_SOURCE[0]}")/../..} # Slurm runs a copy of this file
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$root/scripts/launch/common.sh"

launch dataset=ogbn-proteins system=gnnpipe \
    model=resgcn model.num_layers=16 model.dropout=0.1 batch.num_chunks=32 train.metric=rocauc \
    train.lr=0.005 train.weight_decay=0 train.num_epochs=500 "$@"
