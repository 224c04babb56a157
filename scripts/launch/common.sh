# shellcheck shell=bash
# What the scripts of this folder share. Call them from the repository's root:
#
#   scripts/launch/ogbn-arxiv.sh [KEY=VALUE …]                                       one host
#   NODES=2 NODE_RANK=0 MASTER_ADDR=host0 scripts/launch/ogbn-arxiv.sh [KEY=VALUE …] several, on each of them
#   sbatch --nodes=2 --ntasks-per-node=2 scripts/launch/ogbn-arxiv.sh [KEY=VALUE …]  Slurm, a task a rank
#
# Several hosts must share the working directory and the folder of the data (GNNPAR_DATA).
#
#   STAGES=4            pipeline stages; under Slurm its number of tasks
#   MASTER_PORT=29500   of the first host, for NODES
#   PYTHON=python       of the environment that gnnpar is installed in
#   DRY_RUN=1           print the command instead of running it

# launch KEY=VALUE …: train with these keys, on as many processes as there are stages.
launch() {
    local python=${PYTHON:-python} stages=${STAGES:-4} nodes=${NODES:-1}
    local command=("$python" -m gnnpar train)
    if ((${SLURM_NTASKS:-1} > 1)); then
        stages=$SLURM_NTASKS
        export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
        command=(srun "--cpus-per-task=${SLURM_CPUS_PER_TASK:-1}" "${command[@]}")
    elif ((nodes > 1)); then
        if ((stages % nodes)); then
            echo "STAGES=$stages cannot be dealt out to NODES=$nodes hosts; make it a multiple" >&2
            return 2
        fi
        command=("$python" -m torch.distributed.run
            "--nnodes=$nodes" "--node-rank=${NODE_RANK:?is the number of this host, from 0}"
            "--nproc-per-node=$((stages / nodes))"
            "--master-addr=${MASTER_ADDR:?is the first host}" "--master-port=${MASTER_PORT:-29500}"
            -m gnnpar train)
    fi
    command+=("parallel.stages=$stages" "$@")
    if [[ -n ${DRY_RUN:-} ]]; then
        printf '%q ' "${command[@]}"
        echo
    else
        "${command[@]}"
    fi
}
