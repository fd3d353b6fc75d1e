#!/usr/bin/env bash
# Trains all drafters that the package ships, from the target's text to exported folders with cards.
#   benchmarks/shipped_weights.sh TEXT WORK      TEXT: folder of smollm2_generated; WORK: about 40 GB, keeps everything
# Rerun to resume: finished steps are skipped. SCALE=0.01 gives every training a hundredth of its minutes. About
# 10 hours on two cores. Weights go to the package by hand: copy WORK/weights/* to src/dartree_exp/drafters/weights/.
set -euo pipefail
[ $# = 2 ] || { sed -n 2,5p "$0"; exit 2; }
text=$(realpath "$1") work=$(realpath -m "$2") scale=${SCALE:-1} first=$PWD
python=${PYTHON:-$first/.venv/bin/python}
data=$work/greedy_and_sampled.jsonl.gz features=$work/features runs=$work/runs/training weights=$work/weights
mkdir -p "$work/measured" "$weights"
# glibc returns the memory of large tensors to the system and gets it back at every step, page by page. Kept, and in large
# pages: 40 instead of 34 steps of the backbone a minute on two cores that had nothing else to do.
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=268435456}
cd "$work"

# Ids of the sampled text get a suffix: both texts answer the same prompts.
[ -e "$data" ] || { "$python" - "$text" "$data" <<'END'
import gzip, json, os, sys
folder, out = sys.argv[1:]
with gzip.open(out + ".part", "wt") as file:
    for name, suffix in (("greedy_192", ""), ("sampled_t1_192", "-t1")):
        for line in gzip.open(f"{folder}/{name}.jsonl.gz", "rt"):
            row = json.loads(line)
            file.write(json.dumps(row | {"id": row["id"] + suffix}) + "\n")
os.rename(out + ".part", out)
END
}

both() {  # a command in two processes that share its work
  "$python" -m "$@" --part 0/2 & local one=$!
  "$python" -m "$@" --part 1/2; wait "$one"
}
both dartree_exp.training.capture --data "$data" --holdout 8 --out "$features"

scaled() {  # minutes or steps, how many
  "$python" -c "print(round($2 * $scale, 3) if '$1' == 'minutes' else max(1, int($2 * $scale)))"
}
train() {  # name, minutes or steps, how many, settings: two processes
  local name=$1 unit=$2 length; length=$(scaled "$2" "$3"); shift 3
  "$python" -m torch.distributed.run --standalone --nproc-per-node 2 -m dartree_exp.train data="$data" features="$features" \
    training.samples=16 training.save_every=300 training."$unit"="$length" output="$work/runs" name="$name" "$@"
}
ship() {  # name of the training, folder, tau's samples per domain, further arguments of export
  local run=$runs/$1 out=$weights/$2 samples=$3 measured=$work/measured/$2; shift 3
  [ -e "$out/card.json" ] || { rm -rf "$out"; "$python" -m dartree_exp.training.export --run "$run" --data "$data" --holdout 8 --out "$out" "$@"; }
  [ -e "$measured.accuracy.json" ] || "$python" -m dartree_exp.training.validate --drafter "$out" --features "$features" --threads 2 --out "$measured.accuracy.json"
  [ -e "$measured.tau.json" ] || "$python" -m dartree_exp.training.tau --drafter "$out" --data "$data" --holdout 8 --threads 2 \
    --samples "$samples" --out "$measured.tau.json"
  "$python" -m dartree_exp.training.card --drafter "$out" --accuracy "$measured.accuracy.json" --validation "$measured.tau.json" --out "$out"
}
fitted() {  # folder: calibrated edges, and the pair of coupled drafting
  local out=$weights/$1 command
  for command in edges temper; do
    [ -e "$work/measured/$1.$command" ] && continue
    "$python" -m dartree_exp.training.$command --drafter "$out" --data "$data" --holdout 8 --samples 8 --cap 96 --threads 2 --out "$out/edges.json"
    touch "$work/measured/$1.$command"
  done
}
calibrated() {  # folder: temperatures of a confidence head
  local out=$weights/$1
  [ -e "$out/calibration.json" ] || "$python" -m dartree_exp.training.calibrate --drafter "$out" --data "$data" --holdout 8 --out "$out/calibration.json"
}

# The shared backbone: the one of the package goes on, if there is one.
shipped=$first/src/dartree_exp/drafters/weights/smollm2_135m
train backbone minutes 260 training.init="$shipped"
both dartree_exp.training.finals --features "$features"

base=smollm2_135m on=training.init=$runs/backbone
train gru minutes 15 training=head "$on" training.lr=0.003
ship gru $base 8
fitted $base
for head in markov markov_gated markov_rnn; do
  train $head minutes 10 training=dspark training.head=$head "$on" training.lr=0.003
  folder=${base}_${head#markov_}
  ship $head "$folder" 4 --backbone "$weights/$base"
  calibrated "$folder"
  fitted "$folder"
done
train swiglu minutes 10 training=head training.head=swiglu "$on" training.lr=0.003
ship swiglu ${base}_swiglu 4 --backbone "$weights/$base"
fitted ${base}_swiglu
train latent minutes 15 training=dblast "$on" training.lr=0.003
ship latent ${base}_latent 4 --backbone "$weights/$base"
fitted ${base}_latent

train eagle minutes 40 training=eagle
ship eagle ${base}_eagle3 4
train medusa minutes 10 training=medusa
ship medusa ${base}_medusa 4
[ -e "$work/measured/medusa_paths.json" ] || "$python" -m dartree_exp.training.rank_paths --method medusa \
  --drafter "$weights/${base}_medusa" --data "$data" --holdout 8 --threads 2 --out "$work/measured/medusa_paths.json"

# JetSpec's matched pair: equal steps on the same text, from the same weights.
pair=(training.init="$runs/backbone" training.kl=1 training.ce=0 training.gamma=1000000 training.loss_slots=8)
train causal steps 1500 training.causal=true "${pair[@]}"
ship causal ${base}_causal 4
train bidirectional steps 1500 "${pair[@]}"
ship bidirectional ${base}_bidirectional 4
# A longer block, for the study of block sizes.
train block24 minutes 15 "$on" training.block=24
ship block24 ${base}_block24 4

# AdaFlash: one process drafts and trains in turn. `before` has the same backbone and a length head.
on_policy() {  # name, minutes of CPU time or steps, how many, settings
  local name=$1 unit=$2 length; length=$(scaled "$2" "$3"); shift 3
  "$python" -m dartree_exp.train training=on_policy training.init="$weights/$base" data="$data" threads=2 \
    training.save_every=300 training."$unit"="$length" output="$work/runs" name="$name" "$@"
  ship "$name" ${base}_"$name" 4
}
on_policy before steps 64 training.prefit_steps="$(scaled steps 64)"
on_policy adaflash minutes 120 training.prefit_steps=64
