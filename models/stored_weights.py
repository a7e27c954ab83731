"""How the weights of all layers are stored, and how they are looked at.

Each kind of matrix of all layers lies in one tensor, of which every layer's parameter is a part. So `W_Q` of the whole
model, [layer, head, d_model, d_head], is a view like that of a single layer, and no weight exists twice.
"""

from collections.abc import Callable
from typing import Self, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.errors import UsageError
from interp.models.attention import HeadLayout
from interp.models.block import Block
from interp.models.config import ModelConfig
from interp.models.ffn import frozen
from interp.models.norm import Norm, PlainNorm


class StoredWeights(nn.Module):
    """The parameters of a transformer, uninitialised and frozen, and views of them by name."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.config = config
        with torch.device("meta"):
            self.embed = nn.Parameter(torch.empty(config.d_vocab, config.d_model), requires_grad=False)
            self.pos_embed = frozen(config.axis_sizes["position"], config.d_model) if config.learned_positions else None
            self.ln_embed = PlainNorm(config) if config.embed_norm else None
            self.blocks = nn.ModuleList(Block(config, f"blocks.{layer}", layer) for layer in range(config.n_layers))
            self.ln_final = Norm(config, "ln_final") if config.final_norm else None
            self.unembed = None if config.tied_embeddings else frozen(config.d_vocab, config.d_model)
            self.unembed_bias = frozen(config.d_vocab) if config.unembed_bias else None
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
        if self.pos_embed is not None:
            found["pos_embed.W_pos"] = self.pos_embed.data
        if self.ln_embed is not None:
            found |= {f"ln_embed.{name}": view.data for name, view in self.ln_embed.weights().items()}
        for layer, block in enumerate(self.layers):
            found |= {f"blocks.{layer}.{name}": view.data for name, view in block.weights().items()}
        if self.ln_final is not None:
            found |= {f"ln_final.{name}": view.data for name, view in self.ln_final.weights().items()}
        if self.unembed is not None:
            found["unembed.W_U"] = self.unembed.data.mT
        return found if self.unembed_bias is None else {**found, "unembed.b_U": self.unembed_bias.data}

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
        shapes = {name: old.shape for block in self.blocks for name, old in block.named_parameters()}
        for name, shape in shapes.items():
            self._share(name, torch.empty(len(self._holding(name)), *shape, device=device, dtype=dtype))
        for module in (self, *(norm for norm in (self.ln_embed, self.ln_final) if norm is not None)):
            for name, old in list(module.named_parameters(recurse=False)):
                empty = torch.empty(old.shape, device=device, dtype=dtype)
                setattr(module, name, nn.Parameter(empty, requires_grad=False))

    def _holding(self, name: str) -> list[nn.Module]:
        """The blocks that have a parameter of this name: not all, where layers differ."""
        return [block for block in self.blocks if name in dict(block.named_parameters())]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `.to()` and its like go through: the layers' weights are joined again, and the old ones let go."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in self._stacks:
            self._joined(name)
        return self

    def _share(self, name: str, stack: Tensor) -> None:
        """Make the layers' parameters of one name views of one tensor."""
        path, leaf = name.rsplit(".", 1)
        for block, part in zip(self._holding(name), stack, strict=True):
            module = block.get_submodule(path)
            old = getattr(module, leaf)
            setattr(module, leaf, nn.Parameter(part, requires_grad=old.requires_grad))
        self._stacks[name] = stack

    def _stacked(self, name: str) -> Tensor:
        """One kind of weight of all layers."""
        holding = len(self._holding(name))
        if holding != len(self.blocks):
            raise UsageError(
                f"{name} exists in {holding} of {len(self.blocks)} layers, so there is no tensor of all of them; "
                "`model.weights()` has each layer's by name."
            )
        return self._joined(name)

    def _joined(self, name: str) -> Tensor:
        """One kind of weight of the layers that have it. Joined again where they were given new tensors."""
        stack = self._stacks[name]
        parameters = [block.get_parameter(name) for block in self._holding(name)]
        if any(parameter.data_ptr() != part.data_ptr() for parameter, part in zip(parameters, stack, strict=True)):
            self._share(name, torch.stack([parameter.data for parameter in parameters]))
        return self._stacks[name]
