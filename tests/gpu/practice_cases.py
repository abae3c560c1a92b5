"""Tasks that practitioners run on one GPU, with the libraries' kernels of the same: for ``tests/gpu/practice.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F

from kernellab.model_integration.gradient import said_true
from kernellab.model_integration.gradient.derive import PairTexts, pair_texts
from kernellab.task import load_task

Run = Callable[[], Any]
Peers = Callable[[tuple[Any, ...]], Mapping[str, Callable[[], Run]]]


@dataclass(frozen=True)
class Case:
    """A task; ``peers`` gives, by name, what prepares a call on inputs; ``heads``: some heads are checked.

    Of a task that says ``GRAD = True`` the backward is the case; what it reads of a forward comes from ours."""

    family: str
    stated: str
    peers: Peers = lambda inputs: {}
    heads: bool = False

    @cached_property
    def pair(self) -> PairTexts | None:
        """The backward and the forward that saves for it, derived when they are first asked for."""
        return pair_texts(load_task(self.stated, "forward")) if said_true(self.stated, "GRAD") else None

    @property
    def text(self) -> str:
        """The task that is designed."""
        return self.pair.backward if self.pair is not None else self.stated

    @property
    def forward(self) -> str:
        """The task of the forward that saves what the backward reads, "" where it reads the inputs alone."""
        return self.pair.forward if self.pair is not None else ""

    @property
    def saved(self) -> tuple[int, ...]:
        """What the backward reads of that forward's results."""
        return self.pair.saved if self.pair is not None else ()


CASES: dict[str, Case] = {}
#: how the names of peers begin that run a forward and its backward
BOTH = "both"


def _normal(*shape: int, dtype: str = "bfloat16", scale: str = "") -> str:
    return f"torch.randn({', '.join(map(str, shape))}, dtype=torch.{dtype}){scale}"


def _task(names: str, body: str, *inputs: str, gradient: bool = False) -> str:
    lines = body if "return " in body else f"return {body}"
    head = "import math\nimport torch\nimport torch.nn.functional as F\n" + "\nGRAD = True\n" * gradient
    indented = "\n".join("    " + line for line in lines.splitlines())
    return f"{head}\n\ndef reference({names}):\n{indented}\n\n\ndef inputs():\n    return {', '.join(inputs)},\n"


def _add(family: str, name: str, names: str, body: str, *inputs: str, **more: Any) -> None:
    gradient = more.pop("gradient", False)
    CASES[name] = Case(family, _task(names, body, *inputs, gradient=gradient), **more)


# -- attention --------------------------------------------------------------------------------------------------------


def _backends() -> dict[str, Any]:
    from torch.nn.attention import SDPBackend

    return {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def _sdpa(**options: Any) -> Peers:
    def peers(inputs: tuple[Any, ...]) -> Mapping[str, Callable[[], Run]]:
        from torch.nn.attention import sdpa_kernel

        def prepared(backend: Any) -> Run:
            def run() -> Any:
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(*inputs, **options)

            return run

        return {f"sdpa {name}": lambda b=backend: prepared(b) for name, backend in _backends().items()}

    return peers


def _sdpa_backward(**options: Any) -> Peers:
    """The backward alone, from what the library's forward has saved, and with the forward."""

    def peers(inputs: tuple[Any, ...]) -> Mapping[str, Callable[[], Run]]:
        from torch.nn.attention import sdpa_kernel

        def prepared(backend: Any) -> Run:
            leaves = [t.clone().requires_grad_() for t in inputs[1:4]]
            with torch.enable_grad(), sdpa_kernel(backend):
                output = F.scaled_dot_product_attention(*leaves, **options)
            return lambda: torch.autograd.grad(output, leaves, inputs[0], retain_graph=True)

        def whole(backend: Any) -> Run:
            leaves = [t.clone().requires_grad_() for t in inputs[1:4]]

            def run() -> Any:
                with torch.enable_grad(), sdpa_kernel(backend):
                    output = F.scaled_dot_product_attention(*leaves, **options)
                return torch.autograd.grad(output, leaves, inputs[0])

            return run

        ways = {"sdpa backward": prepared, f"{BOTH} sdpa": whole}
        return {f"{w} {n}": lambda b=b, way=way: way(b) for w, way in ways.items() for n, b in _backends().items()}

    return peers


def _flex(mask: Any = None, score: Any = None, keys: int = 0, grouped: bool = False) -> Peers:
    def peers(inputs: tuple[Any, ...]) -> Mapping[str, Callable[[], Run]]:
        def prepared() -> Run:
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention

            blocks = create_block_mask(mask, None, None, keys, keys, device="cuda") if mask else None
            compiled = torch.compile(flex_attention)
            return lambda: compiled(*inputs, score_mod=score, block_mask=blocks, enable_gqa=grouped)

        return {"flex": prepared}

    return peers


def _qkv(batch: int, heads: int, groups: int, keys: int, width: int) -> tuple[str, ...]:
    return _normal(batch, heads, keys, width), _normal(batch, groups, keys, width), _normal(batch, groups, keys, width)


def _masked(scores: str, mask: str, value: str = "v") -> str:
    return (
        f"scores = {scores}\nn = torch.arange(q.shape[-2], device=q.device)\ni, j = n[:, None], n[None, :]\n"
        f"return torch.softmax(scores.masked_fill({mask}, float('-inf')), -1) @ {value}"
    )


_CALL = "F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)"
_QKV = "q, k, v"
_CAUSAL: dict[str, Any] = {"is_causal": True, "enable_gqa": True}
for _name, _sizes in {
    "mqa_causal_d128_s4k": (2, 32, 1, 4096, 128),
    "attn_causal_d96_s2k": (4, 16, 16, 2048, 96),
    "attn_causal_d256_s4k": (1, 16, 16, 4096, 256),
    "gqa_causal_d64_s2k": (4, 32, 8, 2048, 64),
}.items():
    _add("attention", _name, _QKV, _CALL, *_qkv(*_sizes), peers=_sdpa(**_CAUSAL), heads=True)
_add(
    "attention",
    "attn_bshd_causal_d128_s2k",
    _QKV,
    "F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True).transpose(1, 2)",
    *[_normal(2, 2048, 16, 128)] * 3,
    peers=lambda inputs: _sdpa(is_causal=True)(tuple(t.transpose(1, 2) for t in inputs)),
)
_SCORES = "q @ k.transpose(-1, -2) / math.sqrt(128)"
_add(
    "attention",
    "softcap_causal_d128_s4k",
    _QKV,
    _masked(f"50.0 * torch.tanh({_SCORES} / 50.0)", "j > i"),
    *_qkv(1, 16, 16, 4096, 128),
    peers=_flex(lambda b, h, i, j: i >= j, lambda score, b, h, i, j: 50.0 * torch.tanh(score / 50.0), keys=4096),
    heads=True,
)
_add(
    "attention",
    "prefix_1k_d128_s4k",
    _QKV,
    _masked(_SCORES, "(j > i) & (j >= 1024)"),
    *_qkv(1, 16, 16, 4096, 128),
    peers=_flex(lambda b, h, i, j: (i >= j) | (j < 1024), keys=4096),
    heads=True,
)
_add(
    "attention",
    "gqa_window_512_d128_s8k",
    _QKV,
    "k, v = k.repeat_interleave(4, 1), v.repeat_interleave(4, 1)\n" + _masked(_SCORES, "(j > i) | (i - j >= 512)"),
    *_qkv(1, 16, 4, 8192, 128),
    peers=_flex(lambda b, h, i, j: (i >= j) & (i - j < 512), keys=8192, grouped=True),
    heads=True,
)
# -- decode -----------------------------------------------------------------------------------------------------------
_add(
    "decode",
    "mla_decode_b32_kv4k",
    "q, c",
    "p = torch.softmax(q @ c.transpose(-1, -2) / math.sqrt(192), -1)\nreturn p @ c[..., :512]",
    _normal(32, 128, 576),
    _normal(32, 4096, 576),
)
_add(
    "decode",
    "paged_decode_b32_kv4k",
    "q, k, v, pages",
    "keys = k[pages].reshape(32, 4096, 8, 128).transpose(1, 2)\n"
    "values = v[pages].reshape(32, 4096, 8, 128).transpose(1, 2)\n"
    "return F.scaled_dot_product_attention(q, keys, values, enable_gqa=True)",
    _normal(32, 32, 1, 128),
    _normal(8192, 16, 8, 128),
    _normal(8192, 16, 8, 128),
    "torch.randperm(8192).reshape(32, 256)",
)
_add(
    "decode",
    "gqa_decode_b1_kv16k",
    _QKV,
    "F.scaled_dot_product_attention(q, k, v, enable_gqa=True)",
    _normal(1, 32, 1, 128),
    _normal(1, 8, 16384, 128),
    _normal(1, 8, 16384, 128),
    peers=_sdpa(enable_gqa=True),
    heads=True,
)
# -- products ---------------------------------------------------------------------------------------------------------
_FP8 = "torch.randn({}, {}).to(torch.float8_e4m3fn)"


def _scaled(**options: Any) -> Peers:
    def peers(inputs: tuple[Any, ...]) -> Mapping[str, Callable[[], Run]]:
        a, b, scale_a, scale_b = inputs
        call = {"out_dtype": torch.bfloat16, **options}
        return {"_scaled_mm": lambda: lambda: torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b.t(), **call)}

    return peers


_add(
    "fp8, int",
    "fp8_rowwise_4096x4096x8192",
    "a, b, sa, sb",
    "((a.to(torch.float32) @ b.to(torch.float32).t()) * sa * sb.t()).to(torch.bfloat16)",
    _FP8.format(4096, 8192),
    _FP8.format(4096, 8192),
    "torch.rand(4096, 1) + 0.5",
    "torch.rand(4096, 1) + 0.5",
    peers=_scaled(use_fast_accum=True),
)
_add(
    "fp8, int",
    "fp8_blocks_4096x4096x8192",
    "a, b, sa, sb",
    "x = a.to(torch.float32).reshape(4096, 64, 128) * sa[..., None]\n"
    "w = b.to(torch.float32).reshape(32, 128, 64, 128) * sb[:, None, :, None]\n"
    "return (x.reshape(4096, 8192) @ w.reshape(4096, 8192).t()).to(torch.bfloat16)",
    _FP8.format(4096, 8192),
    _FP8.format(4096, 8192),
    "torch.rand(4096, 64) + 0.5",
    "torch.rand(32, 64) + 0.5",
    peers=_scaled(),
)


def _dequantised(inputs: tuple[Any, ...]) -> Mapping[str, Callable[[], Run]]:
    x, packed, scales = inputs

    def prepared() -> Run:
        halves = torch.stack((packed & 15, packed >> 4), -1).reshape(packed.shape[0], -1).to(torch.bfloat16) - 8
        weight = (halves.reshape(*scales.shape, 128) * scales[..., None]).reshape(packed.shape[0], -1)
        return lambda: F.linear(x, weight)

    return {"F.linear of bf16": prepared}


_add(
    "fp8, int",
    "int4_weights_16x11008x4096",
    "x, packed, scales",
    "w = torch.stack((packed & 15, packed >> 4), -1).reshape(11008, 32, 128).to(torch.bfloat16) - 8\n"
    "return F.linear(x, (w * scales[..., None]).reshape(11008, 4096))",
    _normal(16, 4096),
    "torch.randint(0, 256, (11008, 2048), dtype=torch.uint8)",
    "torch.rand(11008, 32).to(torch.bfloat16) * 0.01",
    peers=_dequantised,
)
_add(
    "products",
    "experts_swiglu_8x1024x4096x2048",
    "x, w, u",
    "F.silu(x @ w) * (x @ u)",
    _normal(8, 1024, 2048),
    _normal(8, 2048, 4096, scale=" * 0.02"),
    _normal(8, 2048, 4096, scale=" * 0.02"),
)
_add("products", "weight_gradient_4096x4096x8192", "g, x", "g.t() @ x", _normal(8192, 4096), _normal(8192, 4096))
_add(
    "products",
    "linear_residual_8192x4096x4096",
    "x, w, r",
    "F.linear(x, w) + r",
    _normal(8192, 4096),
    _normal(4096, 4096, scale=" * 0.02"),
    _normal(8192, 4096),
)
_add("products", "linear_4x4096x4096", "x, w", "F.linear(x, w)", _normal(4, 4096), _normal(4096, 4096))


def _grouped(inputs: tuple[Any, ...]) -> Mapping[str, Callable[[], Run]]:
    x, w, experts = inputs
    ends = torch.bincount(experts, minlength=8).cumsum(0).to(torch.int32)
    return {"_grouped_mm": lambda: lambda: torch._grouped_mm(x, w, offs=ends)}


_add(
    "products",
    "routed_64x8x2048x1024",
    "x, w, experts",
    "(x[:, None] @ w[experts])[:, 0]",
    _normal(64, 2048),
    _normal(8, 2048, 1024, scale=" * 0.02"),
    "torch.randint(0, 8, (64,)).sort().values",
    peers=_grouped,
)
# -- convolutions -----------------------------------------------------------------------------------------------------
_LAST = ".to(memory_format=torch.channels_last)"


def _tuned(call: Callable[..., Any]) -> Peers:
    def peers(inputs: tuple[Any, ...]) -> Mapping[str, Callable[[], Run]]:
        def run() -> Any:
            torch.backends.cudnn.benchmark = True
            try:
                return call(*inputs)
            finally:
                torch.backends.cudnn.benchmark = False

        return {"cudnn benchmark": lambda: run}

    return peers


for _name, (_x, _w, _options) in {
    "nhwc_depthwise3x3_64x256x56x56": ((64, 256, 56, 56), (256, 1, 3, 3), {"padding": 1, "groups": 256}),
    "nhwc_depthwise7x7_32x384x28x28": ((32, 384, 28, 28), (384, 1, 7, 7), {"padding": 3, "groups": 384}),
    "nhwc_3x3_stride2_64x128x56x56_to_256": ((64, 128, 56, 56), (256, 128, 3, 3), {"padding": 1, "stride": 2}),
    "nhwc_3x3_dilated_32x256x28x28": ((32, 256, 28, 28), (256, 256, 3, 3), {"padding": 2, "dilation": 2}),
    "nhwc_1x1_64x512x28x28_to_1024": ((64, 512, 28, 28), (1024, 512, 1, 1), {}),
    "nhwc_stem7x7_64x3x224x224_to_64": ((64, 3, 224, 224), (64, 3, 7, 7), {"padding": 3, "stride": 2}),
}.items():
    _text = "".join(f", {key}={value}" for key, value in _options.items())
    _add(
        "convolutions",
        _name,
        "x, w",
        f"F.conv2d(x, w{_text})",
        _normal(*_x, scale=_LAST),
        _normal(*_w, scale=" * 0.05").join("()") + _LAST,
        peers=_tuned(lambda x, w, o=_options: F.conv2d(x, w, **o)),
    )
_add(
    "convolutions",
    "nhwc_3x3_bias_relu_64x128x28x28",
    "x, w, b",
    "F.relu(F.conv2d(x, w, b, padding=1))",
    _normal(64, 128, 28, 28, scale=_LAST),
    f"({_normal(128, 128, 3, 3, scale=' * 0.05')}){_LAST}",
    _normal(128),
    peers=_tuned(lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=1))),
)
# -- rows, order, scans, moves ----------------------------------------------------------------------------------------


def _liger(module: str, function: str, *places: int, more: tuple[Any, ...] = ()) -> Peers:
    def peers(inputs: tuple[Any, ...]) -> Mapping[str, Callable[[], Run]]:
        def prepared() -> Run:
            import importlib

            made = getattr(importlib.import_module(f"liger_kernel.ops.{module}"), function)
            chosen = [inputs[place] for place in places]
            return lambda: made.apply(*chosen, *more)

        return {"liger": prepared}

    return peers


_ROWS = "rows"
_add(_ROWS, "log_softmax_8192x50257", "x", "torch.log_softmax(x, -1)", _normal(8192, 50257))
_add(
    _ROWS,
    "softmax_2048x131072",
    "x",
    "torch.softmax(x, -1)",
    _normal(2048, 131072),
    peers=_liger("softmax", "LigerSoftmaxFunction", 0),
)
_add(_ROWS, "topk40_32x151936", "x", "torch.topk(x, 40, -1)", _normal(32, 151936, dtype="float32"))
_add(_ROWS, "cumsum_8192x8192_bf16", "x", "torch.cumsum(x, -1)", _normal(8192, 8192))
_add(_ROWS, "cumsum_down_65536x256_f32", "x", "torch.cumsum(x, 0)", _normal(65536, 256, dtype="float32"))
_add(
    _ROWS,
    "layer_norm_65536x768",
    "x, w, b",
    "F.layer_norm(x, (768,), w, b)",
    _normal(65536, 768),
    _normal(768),
    _normal(768),
    peers=_liger("layer_norm", "LigerLayerNormFunction", 0, 1, 2, more=(1e-5,)),
)
_add(
    _ROWS,
    "embedding_width128_1m_ids",
    "w, i",
    "F.embedding(i, w)",
    _normal(128256, 128),
    "torch.randint(0, 128256, (1048576,))",
)


def _segments(inputs: tuple[Any, ...]) -> Mapping[str, Callable[[], Run]]:
    values, rows = inputs
    lengths = torch.bincount(rows, minlength=8192)
    return {"segment_reduce": lambda: lambda: torch.segment_reduce(values, "sum", lengths=lengths, unsafe=True)}


_add(
    _ROWS,
    "sorted_rows_131072x256_to_8192",
    "x, i",
    "torch.zeros(8192, 256, dtype=x.dtype, device=x.device).index_add(0, i, x)",
    _normal(131072, 256, dtype="float32"),
    "torch.randint(0, 8192, (131072,)).sort().values",
    peers=_segments,
)
_add(
    _ROWS,
    "scatter_mean_sorted_131072x128",
    "x, i",
    "total = torch.zeros(16384, 128, dtype=x.dtype, device=x.device).index_add(0, i, x)\n"
    "count = torch.zeros(16384, dtype=x.dtype, device=x.device).index_add(0, i, torch.ones_like(x[:, 0]))\n"
    "return total / count.clamp(min=1)[:, None]",
    _normal(131072, 128, dtype="float32"),
    "torch.randint(0, 16384, (131072,)).sort().values",
)
_add(
    "pointwise",
    "quant_fp8_blocks_8192x8192",
    "x",
    "h = x.float().reshape(8192, 64, 128)\ns = h.abs().amax(-1, keepdim=True) / 448\n"
    "return (h / s).reshape(8192, 8192).to(torch.float8_e4m3fn), s[..., 0]",
    _normal(8192, 8192),
)
# -- backward ---------------------------------------------------------------------------------------------------------
for _name, _sizes in {
    "attn_grad_causal_d128_s4k": (2, 16, 16, 4096, 128),
    "gqa_grad_causal_d128_s4k": (2, 16, 4, 4096, 128),
    "attn_grad_causal_d64_s4k": (2, 16, 16, 4096, 64),
}.items():
    _add("backward", _name, _QKV, _CALL, *_qkv(*_sizes), gradient=True, peers=_sdpa_backward(**_CAUSAL), heads=True)
_add(
    "backward",
    "layer_norm_grad_16384x2048",
    "x, w, b",
    "F.layer_norm(x, (2048,), w, b, 1e-5)",
    _normal(16384, 2048),
    _normal(2048),
    _normal(2048),
    gradient=True,
)
_add(
    "backward",
    "rms_norm_grad_16384x2048",
    "x, w",
    "F.rms_norm(x, (2048,), w, 1e-6)",
    _normal(16384, 2048),
    _normal(2048),
    gradient=True,
)
_add(
    "backward",
    "cross_entropy_grad_8192x32000",
    "x, t",
    "F.cross_entropy(x.float(), t)",
    _normal(8192, 32000),
    "torch.randint(0, 32000, (8192,))",
    gradient=True,
)
_add(
    "backward",
    "swiglu_grad_8192x11008",
    "a, b",
    "F.silu(a) * b",
    _normal(8192, 11008),
    _normal(8192, 11008),
    gradient=True,
)
_add(
    "backward",
    "rope_grad_2x32x4096x128",
    "q, cos, sin",
    "a, b = q.chunk(2, -1)\nreturn q * cos + torch.cat((-b, a), -1) * sin",
    _normal(2, 32, 4096, 128),
    _normal(4096, 128),
    _normal(4096, 128),
    gradient=True,
)
_add(
    "backward",
    "linear_grad_4096x4096x4096",
    "x, w",
    "F.linear(x, w)",
    _normal(4096, 4096),
    _normal(4096, 4096, scale=" * 0.02"),
    gradient=True,
)
_add(
    "backward",
    "conv3x3_grad_32x128x28x28",
    "x, w",
    "F.conv2d(x, w, padding=1)",
    _normal(32, 128, 28, 28),
    _normal(128, 128, 3, 3, scale=" * 0.05"),
    gradient=True,
)
