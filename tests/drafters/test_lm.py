"""A language model as drafter: its scores, its cache, and refusals before its weights are read."""

from dataclasses import replace

import pytest
import torch

from dartree_exp.assemble import load_parts, make_method
from dartree_exp.config import compose
from dartree_exp.decode import autoregress, speculate
from dartree_exp.drafters import load_drafter
from dartree_exp.drafters.lm import load as lm_load
from dartree_exp.drafters.lm.session import Drafting, LmDrafter
from dartree_exp.engines.target import Target
from dartree_exp.errors import ConfigError, UserError
from dartree_exp.metrics.clock import StageClock
from dartree_exp.models.toy import toy_target
from dartree_exp.verify.sampling import Sampler
from dartree_exp.verify.stopping import StopRule
from tiny_folder import write_target

PROMPT = [4, 9, 33, 17, 9, 60, 3, 21]
SAMPLER = Sampler(1.0, seed=2)


def method(lm, target, *overrides):
    config = compose(["model=toy", "method=draft_model", "tree.budget=12", *overrides])
    return make_method(config.tree, config.budget, LmDrafter(lm, target, 4))


@pytest.mark.parametrize("tree", ["chain", "heap", "pruned", "pool"])
def test_scores_are_those_of_a_forward_over_the_nodes_own_text(tree, monkeypatch):
    """After accepted paths of all lengths, so a cache that was cut wrongly would show."""
    target, lm = (toy_target(dtype=torch.float64, seed=s) for s in (1, 2))
    lm.max_positions, seen, right = 512, [], Drafting.advance

    def watched(self, state, depth, parent, token):
        new = right(self, state, depth, parent, token)
        for node, logits in zip(*new, strict=True):
            path, at = [], node
            while at:
                path.insert(0, self._tokens[at])
                at = self._parents[at]
            text = [*self._text, *path]
            alone = lm.prefill(text, lm.new_cache(len(text))).logits[0]
            torch.testing.assert_close(logits, alone)
            seen.append(depth)
        return new

    monkeypatch.setattr(Drafting, "advance", watched)
    rule = StopRule(24)
    # The target itself and a stranger draft in turns, so paths of every length are accepted.
    for drafter in (lm, target):
        made = method(drafter, target, f"tree={tree}")
        if drafter is target:
            monkeypatch.setattr(Drafting, "advance", right)
        decoded = speculate(target, made, PROMPT, Sampler(), rule, StageClock())
        assert decoded.ids == autoregress(target, PROMPT, Sampler(), rule, StageClock()).ids
    assert max(seen) > 1
    assert len(decoded.rounds) <= 6, "a copy of the target must be accepted whole"


def test_rows_that_were_accepted_are_not_read_again(monkeypatch):
    target, read = toy_target(dtype=torch.float64, seed=1), []
    lm = toy_target(dtype=torch.float64, seed=1)
    right = Target.prefill

    def counted(self, ids, cache, taps=()):
        if self is lm:
            read.append(len(ids))
        return right(self, ids, cache, taps)

    monkeypatch.setattr(Target, "prefill", counted)
    speculate(target, method(lm, target), PROMPT, Sampler(), StopRule(24), StageClock())
    # The chain's last node was drafted but not read, so it comes with the bonus token.
    assert read[0] == len(PROMPT) + 1 and set(read[1:]) == {2}


def test_a_draft_model_of_another_tokenizer_is_refused_before_its_weights(tmp_path, monkeypatch):
    ours, other = write_target(tmp_path / "ours"), write_target(tmp_path / "other")
    names = ["model=smollm2_135m", f"model.path={ours}", "method=draft_model", "engine.dtype=fp32"]
    target, made = load_parts(compose([*names, f"drafter.path={ours}"]))
    assert isinstance(made.drafter, LmDrafter) and made.drafter.lm.vocab_size == target.vocab_size
    text = (other / "tokenizer.json").read_text()
    assert '"colours"' in text
    (other / "tokenizer.json").write_text(text.replace('"colours"', '"colors"'))
    monkeypatch.setattr(lm_load, "load_weights", lambda *_: pytest.fail("weights were read"))
    message = r"its tokenizer is not that of the target .* \(2 tokens differ, such as 'colors'\)"
    with pytest.raises(ConfigError, match=message):
        load_drafter(compose([*names, f"drafter.path={other}"]).drafter, target)
    with pytest.raises(ConfigError, match="its tokenizer is not that of the target toy-llama"):
        load_drafter(compose([*names, f"drafter.path={ours}"]).drafter, toy_target())


def test_a_draft_model_needs_no_chat_template(tmp_path):
    folder = write_target(tmp_path / "base")
    names = ["model=smollm2_135m", f"model.path={folder}", "method=draft_model"]
    target, _ = load_parts(compose([*names, f"drafter.path={folder}", "engine.dtype=fp32"]))
    (folder / "chat_template.jinja").unlink()
    settings = compose([*names, f"drafter.path={folder}"]).drafter
    assert load_drafter(settings, target).num_drafts == 5


def test_a_drafter_with_fewer_rows_reads_its_last_row_for_ids_that_it_lacks():
    target = toy_target(dtype=torch.float64, seed=1)
    small = toy_target(dtype=torch.float64, seed=2, vocab_size=40)
    made, rule = method(small, target), StopRule(24)
    plain = autoregress(target, PROMPT, SAMPLER, rule, StageClock())
    assert max(*plain.ids, *PROMPT) >= 40
    assert speculate(target, made, PROMPT, SAMPLER, rule, StageClock()).ids == plain.ids


@pytest.mark.parametrize("path", [None, "toy://"])
def test_without_weights_it_is_refused(path):
    chosen = [] if path is None else [f"drafter.path={path}"]
    with pytest.raises(ConfigError, match=r"drafter\.path=<folder>"):
        compose(["model=smollm2_135m", "method=draft_model", *chosen])


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    settings = replace(
        compose(["model=toy", "method=draft_model"]).drafter, path=str(tmp_path / "empty")
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"config\.json"):
        load_drafter(settings, toy_target())
