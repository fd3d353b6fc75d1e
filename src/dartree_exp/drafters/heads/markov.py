"""DSpark's correction heads (arXiv 2607.05147): a low-rank bias from the previous token, vanilla,
gated or recurrent.

x is the token before the predicted one (the root at depth 1), h the slot's hidden state, e = W1[x].
Every depth is corrected. A node's state contains e, so a correction is mainly one product with the
candidates' rows of W2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.drafters.heads.config import MarkovHeadConfig
from dartree_exp.drafters.heads.head import AdditiveHead, Codes, Places, Slots, State, Tokens
from dartree_exp.drafters.heads.output_rows import OutputRows, for_rows
from dartree_exp.interfaces import Block

if TYPE_CHECKING:
    from dartree_exp.drafters.heads.confidence import ConfidenceHead


class MarkovHead(AdditiveHead):
    """Vanilla: correction = W2 e. State: e [N, r].

    W1 has a row for every id, since any token can be the previous one. output_size: rows of W2,
    None = as many.
    """

    key_prefix = "markov_head."
    output_key = "markov_w2.weight"
    head_type = "vanilla"
    last_token = True
    pure_draft_prefix_len = 0

    def __init__(
        self, hidden_size: int, vocab_size: int, rank: int, output_size: int | None = None
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.rank = rank
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, output_size or vocab_size, bias=False)
        self._drafted: Tensor | None = None  # [Vd, r], rows of W2 for the drafted ids

    @classmethod
    def from_config(
        cls,
        config: MarkovHeadConfig,
        hidden_size: int,
        vocab_size: int,
        output_size: int | None = None,
    ) -> Self:
        return cls(hidden_size, vocab_size, config.markov_rank, output_size)

    @torch.no_grad()
    def bind(
        self,
        embed_weight: Float[Tensor, "V H"],
        vocab_ids: Int64[Tensor, " Vd"] | None = None,
        lm_head: object = None,
    ) -> Self:
        """As `GRUHead.bind`; the target's tables are not used."""
        self._drafted = None if vocab_ids is None else self.output[vocab_ids]
        return self

    def start(self, roots: int | tuple[int, ...]) -> State:
        return self.markov_w1.weight[[roots] if isinstance(roots, int) else list(roots)]

    def prepare(self, block: Block, candidate_ids: Int64[Tensor, "*R D K"]) -> OutputRows:
        return OutputRows.of(self.output, candidate_ids, self._drafted)

    def correction(self, prepared: OutputRows, state: State, depth: int) -> Float[Tensor, "N K"]:
        return prepared.product(state, depth)

    def advance(
        self,
        prepared: object,
        state: State,
        depth: int,
        parent: Int64[Tensor, " M"],
        token: Int64[Tensor, " M"],
    ) -> Float[Tensor, "M S"]:
        return self.markov_w1.weight.index_select(0, token)

    def codes(self, hidden: Slots, tokens: Tokens, slots: Places | None = None) -> Codes:
        return self.markov_w1(tokens if slots is None else tokens.gather(1, slots))

    @torch.no_grad()
    def init_training(self) -> None:
        """W1 starts at zero and a row changes only if its token precedes a label (Adam does not
        change weights without a gradient), so there is no correction after tokens never seen.

        W2 must then not be zero. Its standard deviation 1/2 is that of both factors of a bias of a
        few nats at rank 64; with a smaller one, W1 would grow too slowly.
        """
        nn.init.zeros_(self.markov_w1.weight)
        nn.init.normal_(self.output, std=0.5)

    def config(self, confidence: ConfidenceHead | None = None) -> MarkovHeadConfig:
        reads_token = confidence is not None and confidence.rank > 0
        return MarkovHeadConfig(self.rank, self.head_type, confidence is not None, reads_token)

    @property
    def output(self) -> Tensor:
        return self.markov_w2.weight


@dataclass(frozen=True)
class GateTables:
    """Per-round tables of the gated head."""

    slots: tuple[Float[Tensor, "*R r"], ...]  # per depth, the hidden part of the gate with its bias
    weight: Float[Tensor, "r r"]  # the part for e, transposed
    output: OutputRows


class GatedMarkovHead(MarkovHead):
    """correction = W2 (sigmoid(Wg [h ; e] + b) * e). State: e [N, r]."""

    head_type = "gated"

    def __init__(
        self, hidden_size: int, vocab_size: int, rank: int, output_size: int | None = None
    ) -> None:
        super().__init__(hidden_size, vocab_size, rank, output_size)
        self.gate_proj = nn.Linear(hidden_size + rank, rank)

    @torch.no_grad()
    def init_training(self) -> None:
        super().init_training()
        _init_projection(self.gate_proj)

    def prepare(  # type: ignore[override]
        self, block: Block, candidate_ids: Int64[Tensor, "*R D K"]
    ) -> GateTables:
        for_hidden, for_token = self.gate_proj.weight.split([self.hidden_size, self.rank], dim=1)
        slots = F.linear(block.hidden.to(for_hidden.dtype), for_hidden, self.gate_proj.bias)
        return GateTables(
            slots.unbind(-2), for_token.t().contiguous(), super().prepare(block, candidate_ids)
        )

    def correction(  # type: ignore[override]
        self, prepared: GateTables, state: State, depth: int
    ) -> Float[Tensor, "N K"]:
        slot = for_rows(prepared.slots[depth - 1], state.shape[0])
        gate = torch.sigmoid(torch.addmm(slot, state, prepared.weight))
        return prepared.output.product(gate * state, depth)

    def codes(self, hidden: Slots, tokens: Tokens, slots: Places | None = None) -> Codes:
        e = super().codes(hidden, tokens, slots)
        return (
            torch.sigmoid(self.gate_proj(torch.cat([hidden.to(e.dtype), e], dim=-1)).to(e.dtype))
            * e
        )


@dataclass(frozen=True)
class RecurrentTables:
    """Per-round tables of the recurrent head: the joint projection, split into [gate, candidate]
    and output.
    """

    update_slots: tuple[Float[Tensor, "*R S"], ...]  # per depth, hidden part, bias included; S = 2r
    update_weight: Float[Tensor, "S S"]  # state part, transposed
    output_slots: tuple[Float[Tensor, "*R r"], ...]  # per depth
    output_weight: Float[Tensor, "S r"]
    output: OutputRows


class RecurrentMarkovHead(MarkovHead):
    """(g, c, o) = Wj [s ; e ; h] + b; correction = W2 tanh(o); s' = sigmoid(g) s + (1 - sigmoid(g))
    tanh(c), initially s = 0.

    State: [s ; e] [N, 2r]. s has read the slots up to the parent's, so `advance` needs the depth.
    """

    head_type = "rnn"
    last_token = False
    reads_block = True

    def __init__(
        self, hidden_size: int, vocab_size: int, rank: int, output_size: int | None = None
    ) -> None:
        super().__init__(hidden_size, vocab_size, rank, output_size)
        self.joint_proj = nn.Linear(2 * rank + hidden_size, 3 * rank)

    @torch.no_grad()
    def init_training(self) -> None:
        """Codes also read the hidden state, so W2 must be zero for corrections to start at zero."""
        super().init_training()
        _init_projection(self.joint_proj)
        nn.init.zeros_(self.output)
        nn.init.normal_(self.joint_proj.weight[:, self.rank : 2 * self.rank], std=0.5)

    def start(self, roots: int | tuple[int, ...]) -> State:
        return F.pad(super().start(roots), (self.rank, 0))

    def prepare(  # type: ignore[override]
        self, block: Block, candidate_ids: Int64[Tensor, "*R D K"]
    ) -> RecurrentTables:
        for_state, for_hidden = self.joint_proj.weight.split(
            [2 * self.rank, self.hidden_size], dim=1
        )
        slots = F.linear(block.hidden.to(for_hidden.dtype), for_hidden, self.joint_proj.bias)
        update_slots, output_slots = slots.split([2 * self.rank, self.rank], dim=-1)
        update, output = for_state.split([2 * self.rank, self.rank])
        rows = super().prepare(block, candidate_ids)
        return RecurrentTables(
            update_slots.unbind(-2),
            update.t().contiguous(),
            output_slots.unbind(-2),
            output.t().contiguous(),
            rows,
        )

    def correction(  # type: ignore[override]
        self, prepared: RecurrentTables, state: State, depth: int
    ) -> Float[Tensor, "N K"]:
        slot = for_rows(prepared.output_slots[depth - 1], state.shape[0])
        out = torch.addmm(slot, state, prepared.output_weight)
        return prepared.output.product(out.tanh_(), depth)

    def advance(  # type: ignore[override]
        self,
        prepared: RecurrentTables,
        state: State,
        depth: int,
        parent: Int64[Tensor, " M"],
        token: Int64[Tensor, " M"],
    ) -> Float[Tensor, "M S"]:
        state = state.index_select(0, parent)
        slot = for_rows(prepared.update_slots[depth - 1], state.shape[0])
        update = torch.addmm(slot, state, prepared.update_weight)
        e = self.markov_w1.weight.index_select(0, token)
        return torch.cat([self._step(update, state[:, : self.rank]), e], 1)

    def codes(self, hidden: Slots, tokens: Tokens, slots: Places | None = None) -> Codes:
        e = super().codes(hidden, tokens)
        for_path, for_slot = self.joint_proj.weight.split(
            [self.rank, self.rank + self.hidden_size], dim=1
        )
        read = F.linear(
            torch.cat([e, hidden.to(e.dtype)], dim=-1), for_slot, self.joint_proj.bias
        ).to(e.dtype)
        state = torch.zeros_like(e[:, 0])
        codes = []
        for j in range(e.shape[1]):
            joint = read[:, j] + F.linear(state, for_path).to(e.dtype)
            codes.append(torch.tanh(joint[:, 2 * self.rank :]))
            state = self._step(joint, state)
        block = torch.stack(codes, dim=1)
        return (
            block if slots is None else block.gather(1, slots[..., None].expand(-1, -1, self.rank))
        )

    def _step(
        self, joint: Float[Tensor, "N columns"], state: Float[Tensor, "N r"]
    ) -> Float[Tensor, "N r"]:
        """s' from the first 2r columns of the joint projection and s."""
        gate, candidate = joint[:, : self.rank], joint[:, self.rank : 2 * self.rank]
        return torch.lerp(torch.tanh(candidate), state, torch.sigmoid(gate))


def _init_projection(projection: nn.Linear) -> None:
    nn.init.normal_(projection.weight, std=projection.weight.shape[1] ** -0.5)
    nn.init.zeros_(projection.bias)
