#!/usr/bin/env bash
# Debian's Slurm as a cluster of this one machine, on loopback, for as long as a command runs:
#
#   sudo apt-get install -y --no-install-recommends slurm-wlm munge
#   tests/slurm/one_node.sh python -m dartree_exp -m hydra/launcher=slurm hydra.launcher.cpus_per_task=1 tree.budget=16,32
#
# Everything lies in a folder of its own under /tmp; nothing of the system's own Slurm or munge is touched.
set -euo pipefail
PATH=$PATH:/usr/sbin
home=$(mktemp -d /tmp/one_node.XXXXXX)
port=${ONE_NODE_PORT:-16817}
host=$(hostname -s)
pids=()
finish() {
  local code=$?
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do kill "${pids[i]}" 2>/dev/null || true; done
  wait || true
  ((code == 0)) || tail -n 20 "$home"/*.log >&2
  rm -rf "$home"
}
trap finish EXIT

mkdir -m 700 "$home/munge" "$home/state" "$home/spool"
(umask 077 && head -c 1024 /dev/urandom >"$home/munge/key")
# munge distrusts folders that others may write, such as /tmp: --force makes that a warning.
munged --foreground --force --key-file="$home/munge/key" --socket="$home/munge/socket" --pid-file="$home/munge/pid" \
  --seed-file="$home/munge/seed" --log-file="$home/munge.log" --num-threads=2 2>>"$home/munge.log" &
pids+=($!)

cat >"$home/slurm.conf" <<CONF
ClusterName=one_node
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$home/munge/socket
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MailProg=/bin/true
NodeName=$host NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$home/slurm.conf
slurmctld -D >"$home/slurmctld.log" 2>&1 &
pids+=($!)
slurmd -D -N "$host" >"$home/slurmd.log" 2>&1 &
pids+=($!)
for _ in $(seq 300); do
  [[ $(sinfo --noheader --format=%t 2>/dev/null) == idle* ]] && break
  sleep 0.1
done
[[ $(sinfo --noheader --format=%t) == idle* ]] || { echo "one_node.sh: the node did not come up" >&2; exit 1; }
"$@"
