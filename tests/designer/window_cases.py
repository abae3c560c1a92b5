"""Small tasks with windows: what a rule for convolution or pooling must get right, by name."""

from __future__ import annotations

_HEAD = "import torch\nimport torch.nn.functional as F\n"


def _task(result: str, *shapes: str) -> str:
    names = "xwb"[: len(shapes)]
    given = ", ".join(f"torch.randn({s})" for s in shapes)
    return f"{_HEAD}def reference({', '.join(names)}):\n    return {result}\ndef inputs():\n    return ({given},)\n"


WINDOWS: dict[str, str] = {
    "plain": _task("F.conv2d(x, w, b)", "2, 5, 9, 11", "7, 5, 3, 3", "7"),
    "stride, padding, dilation": _task(
        "F.conv2d(x, w, stride=(2, 1), padding=(1, 4), dilation=(1, 3))", "2, 3, 12, 13", "9, 3, 3, 4"
    ),
    "one dimension": _task("F.conv1d(x, w, b, stride=3, dilation=4)", "2, 6, 50", "9, 6, 3", "9"),
    "volume": _task("F.conv3d(x, w, padding=1)", "1, 3, 5, 6, 7", "4, 3, 2, 3, 3"),
    "flat volume": _task("F.conv3d(x, w, padding=(0, 1, 0))", "2, 5, 7, 6, 3", "7, 5, 3, 3, 1"),
    "groups": _task("F.conv2d(x, w, padding=1, groups=2)", "2, 8, 7, 7", "6, 4, 3, 3"),
    "depthwise": _task("F.conv2d(x, w, b, padding=1, stride=2, groups=4)", "2, 4, 9, 11", "8, 1, 3, 3", "8"),
    "depthwise, wider than the image": _task("F.conv2d(x, w, padding=1, groups=4)", "2, 4, 1, 5", "4, 1, 3, 3"),
    "mean, wider than the image": _task("F.avg_pool2d(x, 3, 2, 1)", "2, 3, 1, 4"),
    "depthwise, zeros before": _task("F.silu(F.conv1d(F.pad(x, (3, 0)), w, groups=4))", "2, 4, 21", "4, 1, 4"),
    "zeros of any number on each side": _task(
        "F.conv2d(F.pad(x, (1, 2, 0, 3)), w, b, stride=2, padding=(1, 0))", "2, 5, 9, 11", "7, 5, 3, 3", "7"
    ),
    "zeros around what is computed": _task("F.conv2d(F.pad(x * 2 + 1, (0, 3, 2, 1)), w)", "2, 3, 8, 9", "6, 3, 3, 3"),
    "another number around": _task("F.conv1d(F.pad(x, (2, 1), value=0.5), w)", "2, 3, 15", "4, 3, 3"),
    "fewer elements than there were": _task("F.conv1d(F.pad(x, (-2, 1)), w)", "2, 3, 15", "4, 3, 3"),
    "pointwise": _task("F.conv2d(x, w)", "2, 6, 7, 9", "10, 6, 1, 1"),
    "transposed": _task("F.conv_transpose2d(x, w, b, padding=1)", "2, 6, 5, 7", "6, 5, 3, 3", "5"),
    "transposed by phases": _task(
        "F.conv_transpose2d(x, w, stride=(2, 3), padding=(1, 2), output_padding=1)", "1, 6, 5, 6", "6, 5, 3, 5"
    ),
    "phases without a tap": _task(
        "F.conv_transpose1d(x, w, b, stride=2, padding=1, dilation=2)", "2, 6, 20", "6, 5, 3", "5"
    ),
    "transposed groups": _task(
        "F.conv_transpose3d(x, w, stride=2, padding=1, groups=2)", "1, 8, 3, 4, 5", "8, 3, 3, 3, 3"
    ),
    "max": _task("F.max_pool2d(x, 3, 2, 1, ceil_mode=True)", "2, 3, 10, 11"),
    "max, dilated": _task("F.max_pool1d(x, 8, stride=1, padding=4, dilation=3)", "2, 3, 40"),
    "mean of a volume": _task("F.avg_pool3d(x, 3, 2, 1)", "1, 3, 7, 6, 5"),
    "mean of what is inside": _task("F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", "2, 3, 10, 11"),
    "mean, rounded up": _task("F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)", "2, 3, 10, 12"),
    "adaptive": _task("F.adaptive_avg_pool2d(x, 3)", "2, 3, 9, 12"),
    "two windows and what stands between": _task(
        "F.conv2d(F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2), b).sigmoid()",
        "2, 3, 10, 12", "5, 3, 3, 3", "4, 5, 2, 2",
    ),
    "a norm that splits the channels": _task(
        "F.group_norm(F.conv2d(x, w, padding=1), 2)", "2, 4, 6, 7", "6, 4, 3, 3"
    ),
}  # fmt: skip
