"""Functions of one element: exponentials, activations, shifts of bits, trigonometry, gamma.

Accuracy is in units in the last place (ulp) over the whole range unless said."""

# mypy: ignore-errors

import triton
import triton.language as tl

from kernellab.lowering.triton.library.arithmetic import kl_sqrt


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
    """(1 + tanh(u)) / 2 is the logistic function of 2 u: a quarter of the instructions, and nothing cancels below 0."""
    return x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))


@triton.jit
def kl_softplus(x):
    return kl_max_nan(x, 0.0) + kl_log1p(tl.exp(-tl.abs(x)))


@triton.jit
def kl_shift_left(a, b):
    """A count outside the width shifts everything out, as in torch."""
    x, n = tl.broadcast(a, tl.cast(b, a.dtype))
    width: tl.constexpr = x.dtype.primitive_bitwidth
    inside = (n >= 0) & (n < width)
    return tl.where(inside, x << tl.where(inside, n, 0), 0).to(x.dtype)


@triton.jit
def kl_shift_right(a, b):
    x, n = tl.broadcast(a, tl.cast(b, a.dtype))
    width: tl.constexpr = x.dtype.primitive_bitwidth
    inside = (n >= 0) & (n < width)
    shifted = (x >> tl.where(inside, n, width - 1)).to(x.dtype)
    if x.dtype.is_int_unsigned():
        return tl.where(inside, shifted, 0).to(x.dtype)
    return shifted


@triton.jit
def kl_below_zero(x):
    """The sign bit, of -0.0 too."""
    if x.dtype == tl.float64:
        return x.to(tl.int64, bitcast=True) < 0
    else:
        return x.to(tl.float32).to(tl.int32, bitcast=True) < 0


@triton.jit
def kl_gcd(a, b):
    """Euclid's algorithm for all elements together: 92 steps are the most that 64 bits take (Lame)."""
    x, y = tl.broadcast(tl.abs(a), tl.abs(tl.cast(b, a.dtype)))
    for _ in range(92):
        last = y == 0
        rest = x % tl.where(last, 1, y).to(x.dtype)
        x = tl.where(last, x, y).to(x.dtype)
        y = tl.where(last, 0, rest).to(x.dtype)
    return x


@triton.jit
def kl_copysign(a, b):
    x, y = tl.broadcast(a, tl.cast(b, a.dtype))
    size = tl.abs(x)
    return tl.where(kl_below_zero(y), -size, size)


@triton.jit
def kl_nextafter(a, b):
    """The float next to ``a`` towards ``b``; the bits of a float grow with its size."""
    x, y = tl.broadcast(a, tl.cast(b, a.dtype))
    up = (y > x) == (x > 0)
    if x.dtype == tl.float64:
        raw = x.to(tl.int64, bitcast=True)
        moved = tl.where(up, raw + 1, raw - 1).to(tl.float64, bitcast=True)
        least = 4.9406564584124654e-324
    else:
        raw = x.to(tl.int32, bitcast=True)
        moved = tl.where(up, raw + 1, raw - 1).to(tl.float32, bitcast=True)
        least = 1.401298464324817e-45
    moved = tl.where(x == 0, tl.where(y > 0, least, -least), moved)
    moved = tl.where(x == y, y, moved)
    return tl.where((x != x) | (y != y), float("nan"), moved).to(x.dtype)


@triton.jit
def kl_tan(x):
    y = x.to(tl.float64)
    return (tl.sin(y) / tl.cos(y)).to(x.dtype)


@triton.jit
def kl_atan(x):
    """Cephes; 2 ulp. float64 keeps what pi / 2 loses in a separate term."""
    a = tl.abs(x)
    far = a > 2.414213562373095
    if x.dtype == tl.float64:
        near = a <= 0.66
        t = tl.where(far, -1.0 / tl.where(far, a, 1.0), tl.where(near, a, (a - 1.0) / (a + 1.0)))
        z = t * t
        p = (-8.750608600031904122785e-1 * z - 1.615753718733365076637e1) * z - 7.500855792314704667340e1
        p = (p * z - 1.228866684490136173410e2) * z - 6.485021904942025371773e1
        q = (z + 2.485846490142306297962e1) * z + 1.650270098316988542046e2
        q = ((q * z + 4.328810604912902668951e2) * z + 4.853903996359136964868e2) * z + 1.945506571482613964425e2
        tail = t * z * (p / q) + t
        rest = tl.where(far, 6.123233995736765886130e-17, tl.where(near, 0.0, 3.061616997868382943065e-17))
        y = tl.where(far, 1.57079632679489661923, tl.where(near, 0.0, 0.78539816339744830962)) + (tail + rest)
    else:
        near = a <= 0.4142135623730950
        t = tl.where(far, -1.0 / tl.where(far, a, 1.0), tl.where(near, a, (a - 1.0) / (a + 1.0)))
        z = t * t
        p = (8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1
        p = p * z - 3.33329491539e-1
        y = tl.where(far, 1.5707963267948966, tl.where(near, 0.0, 0.7853981633974483)) + (p * z * t + t)
    return kl_copysign(y, x)


@triton.jit
def kl_atan2(a, b):
    y, x = tl.broadcast(a, tl.cast(b, a.dtype))
    u, v = tl.abs(y), tl.abs(x)
    most = tl.maximum(u, v)
    ratio = tl.where(most == 0, 0.0, tl.minimum(u, v) / tl.where(most == 0, 1.0, most))
    ratio = tl.where((u == float("inf")) & (v == float("inf")), 1.0, ratio).to(y.dtype)
    angle = kl_atan(ratio)
    angle = tl.where(u > v, 1.57079632679489661923 - angle, angle)
    angle = tl.where(kl_below_zero(x), 3.14159265358979323846 - angle, angle).to(y.dtype)
    return tl.where((x != x) | (y != y), float("nan"), kl_copysign(angle, y))


@triton.jit
def kl_asin(x):
    """Cephes; 2 ulp in float32."""
    if x.dtype == tl.float64:
        return kl_atan2(x, kl_sqrt((1.0 - x) * (1.0 + x)))
    else:
        a = tl.abs(x)
        far = a > 0.5
        z = tl.where(far, 0.5 * (1.0 - a), a * a)
        t = tl.where(far, kl_sqrt(z), a)
        p = (4.2163199048e-2 * z + 2.4181311049e-2) * z + 4.5470025998e-2
        p = (p * z + 7.4953002686e-2) * z + 1.6666752422e-1
        y = p * z * t + t
        return kl_copysign(tl.where(far, 1.5707963267948966 - 2.0 * y, y), x)


@triton.jit
def kl_acos(x):
    if x.dtype == tl.float64:
        return 2.0 * kl_atan2(kl_sqrt(1.0 - x), kl_sqrt(1.0 + x))
    else:
        a = tl.abs(x)
        edge = 2.0 * kl_asin(kl_sqrt(0.5 * (1.0 - a)))
        edge = tl.where(x < 0, 3.14159265358979324 - edge, edge)
        return tl.where(a > 0.5, edge, 1.5707963267948966 - kl_asin(x))


@triton.jit
def kl_sinh(x):
    a = tl.abs(x)
    t = kl_expm1(a)
    half = tl.exp(0.5 * a)
    return kl_copysign(tl.where(a > 20.0, 0.5 * half * half, 0.5 * (t + t / (t + 1.0))), x)


@triton.jit
def kl_cosh(x):
    half = tl.exp(0.5 * tl.abs(x))
    return 0.5 * half * half + 0.5 / (half * half)


@triton.jit
def kl_asinh(x):
    a = tl.abs(x)
    near = kl_log1p(a + a * a / (1.0 + kl_sqrt(a * a + 1.0)))
    return kl_copysign(tl.where(a > 1e9, tl.log(a) + 0.69314718055994530942, near), x)


@triton.jit
def kl_acosh(x):
    t = x - 1.0
    near = kl_log1p(t + kl_sqrt(t * (x + 1.0)))
    y = tl.where(x > 1e9, tl.log(x) + 0.69314718055994530942, near)
    return tl.where(x < 1.0, float("nan"), y)


@triton.jit
def kl_atanh(x):
    a = tl.abs(x)
    return kl_copysign(0.5 * kl_log1p(2.0 * a / (1.0 - a)), x)


@triton.jit
def kl_hypot(a, b):
    x, y = tl.broadcast(a, tl.cast(b, a.dtype))
    u, v = tl.abs(x), tl.abs(y)
    most = tl.maximum(u, v)
    ratio = tl.where(most == 0, 0.0, tl.minimum(u, v) / tl.where(most == 0, 1.0, most)).to(x.dtype)
    length = most * kl_sqrt(ratio * ratio + 1.0)
    length = tl.where((x != x) | (y != y), float("nan"), length)
    return tl.where((u == float("inf")) | (v == float("inf")), float("inf"), length)


@triton.jit
def kl_erfc(x):
    """t exp(p(t) - z * z) with t = 1 / (1 + z / 2), z = |x| (our Chebyshev fit for z < 10), the exponent in float64."""
    z = tl.minimum(tl.abs(x), 10.5) if x.dtype == tl.float32 else tl.abs(x)
    if x.dtype == tl.float64:
        return 1.0 - tl.erf(x)
    else:
        t = 1.0 / (0.5 * z + 1.0)
        p = 0.0863460843 * t - 0.591264414
        p = ((p * t + 1.54626181) * t - 1.85884014) * t + 0.902057760
        p = (((p * t - 0.255569154) * t + 0.443751748) * t + 0.992420115) * t - 1.26516393
        w = z.to(tl.float64)
        y = (t.to(tl.float64) * tl.exp(p.to(tl.float64) - w * w)).to(tl.float32)
        return tl.where(x != x, x, tl.where(x < 0, 2.0 - y, y))


@triton.jit
def kl_lgamma(x):
    """Lanczos' approximation (g = 7, nine terms) in float64, reflected below 1/2; about 1e-13."""
    w = x.to(tl.float64)
    low = w < 0.5
    z = tl.where(low, 1.0 - w, w) - 1.0
    s = 0.99999999999980993 + 676.5203681218851 / (z + 1.0) - 1259.1392167224028 / (z + 2.0)
    s = s + 771.32342877765313 / (z + 3.0) - 176.61502916214059 / (z + 4.0) + 12.507343278686905 / (z + 5.0)
    s = s - 0.13857109526572012 / (z + 6.0) + 9.9843695780195716e-6 / (z + 7.0) + 1.5056327351493116e-7 / (z + 8.0)
    t = z + 7.5
    y = 0.91893853320467274178 + (z + 0.5) * tl.log(t) - t + tl.log(s)
    turn = w - tl.floor(w)
    y = tl.where(low, 1.1447298858494001741 - tl.log(tl.abs(tl.sin(3.14159265358979323846 * turn))) - y, y)
    y = tl.where((w <= 0) & (turn == 0), float("inf"), y)
    return tl.where(tl.abs(w) == float("inf"), float("inf"), y).to(x.dtype)
