"""Domino's correction head: a GRU over the path (arXiv 2605.29707)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from dartree_exp.drafters.heads.config import GRUHeadConfig
from dartree_exp.drafters.heads.head import AdditiveHead, Codes, Places, Slots, State, Tokens
from dartree_exp.drafters.heads.output_rows import OutputRows, for_rows
from dartree_exp.interfaces import Block

if TYPE_CHECKING:
    from dartree_exp.drafters.heads.confidence import ConfidenceHead


class PrefixGRU(nn.Module):
    """One GRU layer without biases, gates in the order r, z, n; parameter names as in
    torch.nn.GRU.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.weight_ih_l0 = nn.Parameter(torch.empty(3 * width, inputs))
        self.weight_hh_l0 = nn.Parameter(torch.empty(3 * width, width))
        for weight in self.parameters():
            nn.init.uniform_(weight, -(width**-0.5), width**-0.5)

    def read(self, inputs: Float[Tensor, "*tokens H"]) -> Float[Tensor, "*tokens gates"]:
        """Input part of the three gates; needs no state, so it takes whole blocks at once."""
        return F.linear(inputs, self.weight_ih_l0)

    def step(
        self, read: Float[Tensor, "N gates"], state: Float[Tensor, "N G"]
    ) -> Float[Tensor, "N G"]:
        """Next state. read: from `read`."""
        # Few calls (both sigmoid gates in one, splits, fused multiply-adds): a depth has a dozen
        # rows, so call overhead is half of this function's time on a CPU.
        width = state.shape[-1]
        read_gates, read_new = read.split([2 * width, width], dim=-1)
        gates, new = F.linear(state, self.weight_hh_l0).split([2 * width, width], dim=-1)
        reset, update = torch.sigmoid(read_gates + gates).chunk(2, dim=-1)
        new = torch.tanh(torch.addcmul(read_new, reset, new))
        return torch.lerp(new, state, update)


@dataclass(frozen=True)
class GRUTables:
    """Per-round tables of the GRU head."""

    slots: tuple[Float[Tensor, "*R E"], ...]  # per depth, the slot part of the split projection
    state_weight: Float[Tensor, "E G"]  # contiguous: the state part
    output: OutputRows


class GRUHead(AdditiveHead):
    """correction = W2 silu(W1 [z ; s]) with z the slot's hidden state and s a GRU over the path.

    W1 [z ; s] = W1z z + W1s s, so the slot part is one product per round. The GRU reads rows of the
    target's embedding table: call `bind` first.
    """

    key_prefix = ""
    output_key = "embed_proj.2.weight"

    def __init__(
        self,
        hidden_size: int,
        vocab_size: int,
        gru_hidden_dim: int,
        emb_dim: int,
        pure_draft_prefix_len: int,
    ) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.gru_hidden_dim = gru_hidden_dim
        self.emb_dim = emb_dim
        self.pure_draft_prefix_len = pure_draft_prefix_len
        self.prefix_gru = PrefixGRU(hidden_size, gru_hidden_dim)
        self.embed_proj = nn.Sequential(
            nn.Linear(hidden_size + gru_hidden_dim, emb_dim, bias=False),
            nn.SiLU(),
            nn.Linear(emb_dim, vocab_size, bias=False),
        )
        # Plain attributes: the target's tensors are neither parameters nor in the state dict.
        self._embed: tuple[Tensor, ...] = ()
        self._table: tuple[Tensor, Tensor] | None = None
        self._tabulated: frozenset[int] = frozenset()
        self._drafted: Tensor | None = None  # [Vd, E], output rows of the ids that are drafted

    @classmethod
    def from_config(
        cls,
        config: GRUHeadConfig,
        hidden_size: int,
        vocab_size: int,
        output_size: int | None = None,
    ) -> Self:
        return cls(
            hidden_size,
            output_size or vocab_size,
            config.gru_hidden_dim,
            config.emb_dim,
            config.pure_draft_prefix_len,
        )

    @torch.no_grad()
    def bind(
        self,
        embed_weight: Float[Tensor, "V H"],
        vocab_ids: Int64[Tensor, " Vd"] | None = None,
        lm_head: object = None,
    ) -> Self:
        """Use the target's embedding table; returns self. Bind again after a change of the weights.

        vocab_ids: the only ids that `advance` will get. The products of W_ih with their embeddings
        are then computed once ([Vd, 3G]): on one CPU core they take two thirds of a GRU step (0.3
        of 0.5 ms, 12 nodes). For a whole vocabulary the table would take too much memory (0.9 GB
        on Qwen3-8B), and the product costs little on a GPU.
        """
        self._embed, self._table, self._tabulated, self._drafted = (
            (embed_weight,),
            None,
            frozenset(),
            None,
        )
        if vocab_ids is not None:
            # In float32: more exact, and bfloat16 products are slow on CPUs without AMX.
            wide = torch.promote_types(self.output.dtype, torch.float32)
            rows = F.linear(embed_weight[vocab_ids].to(wide), self.prefix_gru.weight_ih_l0.to(wide))
            # Other ids point past the table: they fail instead of reading a wrong row.
            place = torch.full_like(embed_weight[:, 0], vocab_ids.numel(), dtype=torch.int64)
            place[vocab_ids] = torch.arange(vocab_ids.numel(), device=place.device)
            self._table, self._tabulated = (
                (rows.to(self.output.dtype), place),
                frozenset(vocab_ids.tolist()),
            )
            self._drafted = self.output[vocab_ids]
        return self

    def start(self, roots: int | tuple[int, ...]) -> State:
        roots = (roots,) if isinstance(roots, int) else roots
        reads = [self._read_root(root) for root in roots]
        return self.prefix_gru.step(torch.cat(reads), self._zero_state(len(reads)))

    def prepare(self, block: Block, candidate_ids: Int64[Tensor, "*R D K"]) -> GRUTables:
        slots = F.linear(block.hidden.to(self.output.dtype), self._w_slot)
        return GRUTables(
            slots.unbind(-2),
            self._w_state.contiguous(),
            OutputRows.of(self.output, candidate_ids, self._drafted),
        )

    def correction(self, prepared: GRUTables, state: State, depth: int) -> Float[Tensor, "N K"]:
        if depth <= self.pure_draft_prefix_len:
            return state.new_zeros(state.shape[0], prepared.output.count)
        slot = for_rows(prepared.slots[depth - 1], state.shape[0])
        code = F.silu(torch.addmm(slot, state, prepared.state_weight.t()))
        return prepared.output.product(code, depth)

    def advance(
        self,
        prepared: GRUTables,
        state: State,
        depth: int,
        parent: Int64[Tensor, " M"],
        token: Int64[Tensor, " M"],
    ) -> Float[Tensor, "M S"]:
        if self._table is None:
            return self.prefix_gru.step(self._read(token), state.index_select(0, parent))
        rows, place = self._table
        read = rows.index_select(0, place.index_select(0, token))
        return self.prefix_gru.step(read, state.index_select(0, parent))

    def states(self, token_embeds: Float[Tensor, "n D H"]) -> Float[Tensor, "n D G"]:
        """States of teacher-forced tokens: entry j has read y_0 (the anchor) .. y_j."""
        read = self.prefix_gru.read(token_embeds)
        state = read.new_zeros(read.shape[0], self._w_state.shape[1])
        states = []
        for j in range(read.shape[1]):
            state = self.prefix_gru.step(read[:, j], state)
            states.append(state)
        return torch.stack(states, dim=1)

    def codes(self, hidden: Slots, tokens: Tokens, slots: Places | None = None) -> Codes:
        states = self.states(self._embedded(tokens))
        depth = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
        if slots is not None:
            states = states.gather(1, slots[..., None].expand(-1, -1, states.shape[-1]))
            depth = depth[slots]
        code = F.silu(F.linear(hidden, self._w_slot) + F.linear(states, self._w_state))
        return code * (depth > self.pure_draft_prefix_len)[..., None]

    @torch.no_grad()
    def init_training(self) -> None:
        """W2 is zero, so corrections start at zero."""
        first = self._mix
        nn.init.normal_(first, std=first.shape[1] ** -0.5)
        nn.init.zeros_(self.output)

    def config(self, confidence: ConfidenceHead | None = None) -> GRUHeadConfig:
        return GRUHeadConfig(self.emb_dim, self.gru_hidden_dim, self.pure_draft_prefix_len)

    @property
    def output(self) -> Tensor:
        return cast(nn.Linear, self.embed_proj[2]).weight  # torch types the items as modules

    @property
    def _mix(self) -> Tensor:
        return cast(nn.Linear, self.embed_proj[0]).weight

    @property
    def _w_slot(self) -> Tensor:
        return self._mix[:, : self.hidden_size]

    @property
    def _w_state(self) -> Tensor:
        return self._mix[:, self.hidden_size :]

    def _zero_state(self, rows: int) -> Tensor:
        return self.output.new_zeros(rows, self._w_state.shape[1])

    def _read_root(self, root: int) -> Tensor:
        token = torch.tensor([root], device=self.output.device)
        if self._table is not None and root in self._tabulated:
            return self._table[0][self._table[1][token]]
        return self._read(token)  # the target's token may be outside the drafting vocabulary

    def _read(self, token: Int64[Tensor, "*tokens"]) -> Float[Tensor, "*tokens gates"]:
        return self.prefix_gru.read(self._embedded(token))

    def _embedded(self, token: Int64[Tensor, "*tokens"]) -> Float[Tensor, "*tokens H"]:
        if not self._embed:
            raise RuntimeError(
                "GRUHead: call bind(embed_weight) with the target's embedding table first"
            )
        return self._embed[0][token].to(self.output.dtype)
