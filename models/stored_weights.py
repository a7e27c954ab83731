"""How the weights of all layers are stored, and how they are looked at.

Each kind of matrix of all layers lies in one tensor, of which every layer's parameter is a part. So `W_Q` of the whole
model, [layer, head, d_model, d_head], is a view like that of a single layer, and no weight exists twice.
"""

from collections.abc import Callable
from typing import Self, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.models.attention import HeadLayout
from interp.models.block import Block
from interp.models.config import ModelConfig
from interp.models.norm import RMSNorm


class StoredWeights(nn.Module):
    """The parameters of a transformer, uninitialised and frozen, and views of them by name."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.config = config
        with torch.device("meta"):
            self.embed = nn.Parameter(torch.empty(config.d_vocab, config.d_model), requires_grad=False)
            self.blocks = nn.ModuleList(Block(config, f"blocks.{layer}") for layer in range(config.n_layers))
            self.ln_final = RMSNorm(config.d_model, config.norm_eps, "ln_final")
            untied = None if config.tied_embeddings else torch.empty(config.d_vocab, config.d_model)
        self.unembed = None if untied is None else nn.Parameter(untied, requires_grad=False)
        self._allocate(device, dtype)

    @property
    def layers(self) -> list[Block]:
        """The blocks, in order."""
        return cast("list[Block]", list(self.blocks))

    @property
    def device(self) -> torch.device:
        return self.embed.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.dtype

    @property
    def n_parameters(self) -> int:
        """Numbers stored; a tied unembedding counts once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def weights(self) -> dict[str, Tensor]:
        """Every weight by name, input axis first: writable views of what is stored, no copies."""
        found: dict[str, Tensor] = {"embed.W_E": self.embed.data}
        for layer, block in enumerate(self.layers):
            found |= {f"blocks.{layer}.{name}": view.data for name, view in block.weights().items()}
        found["ln_final.w"] = self.ln_final.w.data
        if self.unembed is not None:
            found["unembed.W_U"] = self.unembed.data.mT
        return found

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        return self.embed.data

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        return self._unembedding.data.mT

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        return self._layout.query(self._stacked("attn.qkv"))

    @property
    def W_K(self) -> Float[Tensor, "layer kv_head d_model d_head"]:
        return self._layout.key(self._stacked("attn.qkv"))

    @property
    def W_V(self) -> Float[Tensor, "layer kv_head d_model d_head"]:
        return self._layout.value(self._stacked("attn.qkv"))

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        return self._layout.output(self._stacked("attn.out"))

    @property
    def W_gate(self) -> Float[Tensor, "layer d_model d_mlp"]:
        return self._stacked("mlp.gate").mT

    @property
    def W_in(self) -> Float[Tensor, "layer d_model d_mlp"]:
        return self._stacked("mlp.up").mT

    @property
    def W_out(self) -> Float[Tensor, "layer d_mlp d_model"]:
        return self._stacked("mlp.down").mT

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"] | None:
        return self._stacked("attn.out_bias") if self.config.o_bias else None

    @property
    def b_out(self) -> Float[Tensor, "layer d_model"] | None:
        return self._stacked("mlp.down_bias") if self.config.mlp_bias else None

    @property
    def _layout(self) -> HeadLayout:
        return self.layers[0].attn.layout

    @property
    def _unembedding(self) -> Float[Tensor, "d_vocab d_model"]:
        return self.embed if self.unembed is None else self.unembed

    def _allocate(self, device: torch.device, dtype: torch.dtype) -> None:
        """Storage for all weights, one tensor a kind of matrix: so `W_Q` of all layers is a view."""
        self._stacks: dict[str, Tensor] = {}
        for name, first in list(self.blocks[0].named_parameters()):
            self._share(name, torch.empty(len(self.blocks), *first.shape, device=device, dtype=dtype))
        for module, name in ((self, "embed"), (self, "unembed"), (self.ln_final, "w")):
            if (old := getattr(module, name)) is not None:
                empty = torch.empty(old.shape, device=device, dtype=dtype)
                setattr(module, name, nn.Parameter(empty, requires_grad=False))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `.to()` and its like go through: the layers' weights are joined again, and the old ones let go."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in self._stacks:
            self._stacked(name)
        return self

    def _share(self, name: str, stack: Tensor) -> None:
        """Make the layers' parameters of one name views of one tensor."""
        path, leaf = name.rsplit(".", 1)
        for block, part in zip(self.blocks, stack, strict=True):
            module = block.get_submodule(path)
            old = getattr(module, leaf)
            setattr(module, leaf, nn.Parameter(part, requires_grad=old.requires_grad))
        self._stacks[name] = stack

    def _stacked(self, name: str) -> Tensor:
        """One kind of weight of all layers. Joined again where the layers were given new tensors."""
        stack = self._stacks[name]
        parameters = [block.get_parameter(name) for block in self.blocks]
        if any(parameter.data_ptr() != part.data_ptr() for parameter, part in zip(parameters, stack, strict=True)):
            self._share(name, torch.stack([parameter.data for parameter in parameters]))
        return self._stacks[name]
