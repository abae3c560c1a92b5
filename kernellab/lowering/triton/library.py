"""Functions that a lowered kernel may call; the lowering copies the text of those that it uses.

Only ``tl`` operations that run both on a GPU and in Triton's interpreter (``libdevice`` does not), so what is tested
without a GPU is what runs on one. Accuracy is in units in the last place (ulp) over the whole range unless said.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.constexpr_function
def kl_unfenced(version):
    """Is this a Triton that leaves the fence out? It places one itself since its pull request 9610."""
    numbers = []
    for part in version.split("+")[0].split(".")[:3]:
        if not part.isdigit():
            break
        numbers.append(int(part))
    return numbers < [3, 8]


@triton.jit
def kl_fence():
    """Shows tensor cores that read shared memory themselves what asynchronous copies have left there.

    A loop's loads are copied ahead by ``cp.async``, which writes as threads do; ``wgmma`` reads by another road, and
    the PTX manual ("Async proxy") asks for a fence between the two. Without it a product took what had lain there
    before. Stands before ``tl.dot``, where the compiler waits for the copies.
    """
    if tl.target_info.cuda_capability_geq(9, 0) and kl_unfenced(triton.__version__):
        tl.inline_asm_elementwise(
            "fence.proxy.async.shared::cta; mov.b32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def kl_floordiv_int(a, b):
    # Triton divides towards zero
    q = a // b
    r = a - q * b
    return q - ((r != 0) & ((r < 0) != (b < 0))).to(q.dtype)


@triton.jit
def kl_mod_int(a, b):
    return a - kl_floordiv_int(a, b) * b


@triton.jit
def kl_floordiv(a, b):
    if a.dtype.is_floating():
        return tl.floor(a / b)
    else:
        return kl_floordiv_int(a, b)


@triton.jit
def kl_floor_div(a, b):
    """Floor division of index scalars, which the interpreter may hold as Python integers."""
    return kl_floordiv_int(tl.cast(a, tl.int64), tl.cast(b, tl.int64))


@triton.jit
def kl_floor_mod(a, b):
    return kl_mod_int(tl.cast(a, tl.int64), tl.cast(b, tl.int64))


@triton.jit
def kl_mod(a, b):
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)


@triton.jit
def kl_sign(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def kl_sqrt(x):
    if x.dtype == tl.float64:
        return tl.sqrt(x)
    else:
        return tl.sqrt_rn(x)


@triton.jit
def kl_trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def kl_round(x):
    """To the nearest integer, halves to even."""
    low = tl.floor(x)
    part = x - low
    odd = low - 2 * tl.floor(low * 0.5)
    up = tl.where(part == 0.5, odd, (part > 0.5).to(x.dtype))
    return tl.where(part == part, low + up, x)


@triton.jit
def kl_log1p(x):
    """4 ulp: the error of 1 + x cancels in the quotient (Kahan)."""
    u = 1.0 + x
    near = tl.where(u == 1.0, 1.0, u - 1.0)
    y = tl.where(u == 1.0, x, tl.log(u) * (x / near))
    return tl.where(u == float("inf"), u, y)


@triton.jit
def kl_expm1(x):
    """2 ulp in float32: x = n log(2) + r, and r's polynomial, so that it costs no logarithm; 4 ulp in float64, where
    the logarithm of the rounded exponential takes its error out again (Kahan)."""
    if x.dtype == tl.float64:
        u = tl.exp(x)
        y = (u - 1.0) * (x / tl.log(tl.where(u == 1.0, 2.0, u)))
        y = tl.where(u == 1.0, x, tl.where(u - 1.0 == -1.0, -1.0, y))
        return tl.where(u == float("inf"), u, y)
    else:
        # beyond these the result no longer changes
        a = tl.where(x < -20.0, -20.0, tl.where(x > 89.0, 89.0, x))
        n = tl.floor(a * 1.4426950408889634 + 0.5)
        r = (a - n * 0.693145751953125) - n * 1.428606765330187e-06
        p = 1.98412698e-4 * r + 1.38888889e-3
        p = ((p * r + 8.33333333e-3) * r + 4.16666667e-2) * r + 1.66666667e-1
        p = (p * r + 0.5) * (r * r) + r
        # half of 2^n, which overflows only where the result does
        half = ((n.to(tl.int32) + 126) << 23).to(tl.float32, bitcast=True)
        y = half * p + (half - 0.5)
        return y + y


@triton.jit
def kl_tanh(x):
    """Cephes: a polynomial below 0.625, exponentials beyond; 2 ulp."""
    a = tl.abs(x)
    z = x * x
    far = 1.0 - 2.0 / (tl.exp(2.0 * a) + 1.0)
    if x.dtype == tl.float64:
        p = (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z - 1.61468768441708447952e3
        q = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z + 4.84406305325125486048e3
        near = x + x * z * (p / q)
    else:
        p = -5.70498872745e-3 * z + 2.06390887954e-2
        p = p * z - 5.37397155531e-2
        p = p * z + 1.33314422036e-1
        p = p * z - 3.33332819422e-1
        near = p * z * x + x
    return tl.where(a < 0.625, near, tl.where(x < 0, -far, far))


@triton.jit
def kl_pow(a, b):
    """Through float64, so that float32 results are within 1 ulp; IEEE's special cases."""
    x, y = tl.broadcast(a.to(tl.float64), b.to(tl.float64))
    size = tl.exp(y * tl.log(tl.abs(x)))
    whole = tl.floor(y) == y
    odd = whole & (tl.floor(y * 0.5) * 2.0 != y)
    negative = tl.where(odd, -size, tl.where(whole | (x == -float("inf")), size, float("nan")))
    r = tl.where(x < 0, negative, size)
    infinite = tl.abs(y) == float("inf")
    r = tl.where(infinite & (x < 0), size, r)
    r = tl.where(infinite & (tl.abs(x) == 1.0), 1.0, r)
    r = tl.where((y == 0.0) | (x == 1.0), 1.0, r)
    return r.to(a.dtype)


@triton.jit
def kl_max_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def kl_min_nan(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def kl_relu(x):
    return tl.maximum(x, 0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def kl_clamp(x, low, high):
    return kl_max_nan(kl_min_nan(x, high), low)


@triton.jit
def kl_silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def kl_gelu(x):
    """Off by at most 6e-7 relatively above -1 and by 5e-6 below, where x * (1 + erf) cancels."""
    if x.dtype == tl.float64:
        return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    else:
        # erfc(z) = t exp(p(t) - z * z), t = 1 / (1 + z / 2), z = |x| / sqrt(2); p is our Chebyshev fit for z < 10
        t = 1.0 / (1.0 + 0.35355339 * tl.abs(x))
        p = 0.0863460843 * t - 0.591264414
        p = ((p * t + 1.54626181) * t - 1.85884014) * t + 0.902057760
        p = (((p * t - 0.255569154) * t + 0.443751748) * t + 0.992420115) * t - 1.26516393
        rest = 0.5 * t * tl.exp(p - 0.5 * x * x)
        return x * tl.where(x < 0, rest, 1.0 - rest)


@triton.jit
def kl_gelu_tanh(x):
    return 0.5 * x * (1.0 + kl_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@triton.jit
def kl_softplus(x):
    return kl_max_nan(x, 0.0) + kl_log1p(tl.exp(-tl.abs(x)))


@triton.jit
def kl_times(a, b):
    return a * b


@triton.jit
def kl_plus(a, b):
    return a + b


@triton.jit
def kl_reduce_max(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return tl.reduce(x, axis, kl_max_nan, keep_dims=keep_dims)


@triton.jit
def kl_reduce_min(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return tl.reduce(x, axis, kl_min_nan, keep_dims=keep_dims)


@triton.jit
def kl_reduce_prod(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return tl.reduce(x, axis, kl_times, keep_dims=keep_dims)


@triton.jit
def kl_reduce_any(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return tl.max(x.to(tl.int32), axis, keep_dims=keep_dims) != 0


@triton.jit
def kl_first(hit, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    """The first index along ``axis`` where ``hit`` holds."""
    size: tl.constexpr = hit.shape[axis]
    ones: tl.constexpr = [1] * axis + [size] + [1] * (len(hit.shape) - axis - 1)
    lane = tl.reshape(tl.arange(0, size), ones)
    return tl.min(tl.where(hit, lane, size), axis, keep_dims=keep_dims).to(tl.int64)


@triton.jit
def kl_argmax(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    """First index of the largest; NaN counts as largest."""
    return kl_first((x == kl_reduce_max(x, axis, True)) | (x != x), axis, keep_dims)


@triton.jit
def kl_argmin(x, axis: tl.constexpr, keep_dims: tl.constexpr = False):
    return kl_first((x == kl_reduce_min(x, axis, True)) | (x != x), axis, keep_dims)


@triton.jit
def kl_cummax(x, axis: tl.constexpr, reverse: tl.constexpr = False):
    return tl.associative_scan(x, axis, kl_max_nan, reverse)


@triton.jit
def kl_cummin(x, axis: tl.constexpr, reverse: tl.constexpr = False):
    return tl.associative_scan(x, axis, kl_min_nan, reverse)


@triton.jit
def kl_order_key(x, real, axis: tl.constexpr, down: tl.constexpr):
    """A 64-bit integer that grows along the order wanted: the key above, the place below; lanes not real come last."""
    if x.dtype.is_floating():
        y = x.to(tl.float32)
        bits = tl.where(y == 0, 0.0, y).to(tl.int32, bitcast=True)
        key = tl.where(y != y, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))
    else:
        key = x.to(tl.int32)
    if down:
        key = ~key
    key = tl.where(real, key, 0x7FFFFFFF)
    size: tl.constexpr = x.shape[axis]
    ones: tl.constexpr = [1] * axis + [size] + [1] * (len(x.shape) - axis - 1)
    return (key.to(tl.int64) << 32) | tl.reshape(tl.arange(0, size), ones).to(tl.int64)


@triton.jit
def kl_first_in_order(x, count: tl.constexpr):
    """The ``count`` smallest along the last dimension, in order."""
    size: tl.constexpr = x.shape[len(x.shape) - 1]
    if size == 1:
        return x
    elif count >= size:
        return tl.sort(x)
    elif count == 1:
        return tl.min(x, len(x.shape) - 1, keep_dims=True)
    else:
        return ~tl.topk(~x, count)


@triton.jit
def kl_linear_step(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def kl_linear_scan(a, b, axis: tl.constexpr, reverse: tl.constexpr = False):
    """``h[t] = a[t] * h[t-1] + b[t]`` along ``axis``, from zero; ``h[t+1]`` where it runs in reverse."""
    _, h = tl.associative_scan((a, b), axis, kl_linear_step, reverse)
    return h


@triton.jit
def kl_bf16(x):
    return x.to(tl.bfloat16)


@triton.jit
def kl_f8e4m3(x):
    """Past the largest number comes NaN, as in torch; the hardware's conversion would stay at the largest."""
    return tl.where(tl.abs(x) > 464.0, float("nan"), x).to(tl.float8e4nv)


@triton.jit
def kl_f8e5m2(x):
    return x.to(tl.float8e5)
