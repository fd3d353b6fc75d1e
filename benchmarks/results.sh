#!/usr/bin/env bash
# Makes the pages of docs/results again: every study, then its report.
#   benchmarks/results.sh OUT [NAME ...]      OUT: folder for pages and tables; NAME: only these studies
# Sweeps lie in multirun/; rerun to resume. About six hours on two cores. WEIGHTS: folder of the drafters that the package does
# not ship (benchmarks/shipped_weights.sh): the studies of matched pairs need it. SETTINGS: further settings of every study.
set -euo pipefail
[ $# -ge 1 ] || { sed -n 2,5p "$0"; exit 2; }
out=$1; shift
wanted=" $* " python=${PYTHON:-.venv/bin/python} weights=${WEIGHTS:-} base=smollm2_135m
mkdir -p "$out"

study() {  # page, experiment, arguments of the report or -, settings
  local page=$1 experiment=$2 report=$3; shift 3
  [ "$wanted" = "  " ] || [[ $wanted == *" $page "* ]] || return 0
  # SETTINGS and the report's arguments are words.
  # shellcheck disable=SC2086
  "$python" -m dartree_exp +experiment="$experiment" sweep.name="$page" "$@" ${SETTINGS:-}
  # shellcheck disable=SC2086
  "$python" -m dartree_exp.report "multirun/$page" $report --html "$out/$page.html"
  local table
  for table in "multirun/$page"/comparison.md "multirun/$page"/swap_*.md; do
    [ -e "$table" ] || continue
    if [ "$(basename "$table")" = comparison.md ]; then cp "$table" "$out/$page.md"; else cp "$table" "$out/${page}_$(basename "$table")"; fi
  done
}
two=(hydra/launcher=cores hydra.launcher.n_jobs=2 engine.threads=1)  # two runs at a time: read tau, not speed

study all_methods all_methods "--baseline ddtree" benchmark.limit=24
study table1 table1 "--baseline ddtree --swap tree" "${two[@]}" benchmark.limit=24
study table2_construction table2_construction "--swap tree" "${two[@]}" benchmark.limit=24
study table3_heads table3_heads "--baseline dartree_pruned --swap drafter --swap tree" "${two[@]}" benchmark.limit=18
study table3_heads_t1 table3_heads "--baseline dartree_pruned --swap drafter --swap tree" "${two[@]}" benchmark.limit=18 decoding.temperature=1
study fig_width_budget_beta fig_width_budget_beta "--swap tree.width" "${two[@]}" tree.beta=-0.2 tree.width=4,12 tree.budget=16,64,128 benchmark.limit=6
study coupled coupled "--swap tree.coupled" "${two[@]}" benchmark.limit=24
study three_arms three_arms "" "${two[@]}"
study pctree pctree "" benchmark.limit=12
study fig1 fig1 "" benchmark.limit=6
study block_size block_size "" "${two[@]}"
study entropy entropy "" "${two[@]}"
study lengths lengths "" "${two[@]}"
study libraspec libraspec "" "${two[@]}"
study budgets budgets "" benchmark.limit=9
study budgets_t1 budgets "" benchmark.limit=9 decoding.temperature=1
study dblast dblast "--baseline dflash" "${two[@]}" benchmark.limit=24
study dblast_creative dblast "--baseline dflash" "${two[@]}" benchmark=creative
if [ -n "$weights" ]; then
  weights=$(realpath "$weights")
  study jetspec jetspec "--swap drafter" "${two[@]}" model.drafters.jetspec="$weights/${base}_causal" model.drafters.dflash="$weights/${base}_bidirectional"
  study adaflash adaflash "--swap drafter" "${two[@]}" benchmark.limit=24 model.drafters.dflash="$weights/${base}_before" model.drafters.adaflash="$weights/${base}_adaflash"
fi
