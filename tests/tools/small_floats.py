#!/usr/bin/env python3
"""Writes tests/data/small_floats: a model of conversions from and to floats of 8 and 4 bits, with the right results.

    small_floats.py

Codes are converted by ml_dtypes. Numbers are converted exactly here, by fractions, as the tables of ONNX's Cast say, and ml_dtypes
must agree wherever it follows them. Codes are u8, one to an element, by the names of the model's inputs and outputs.
"""
import math, os, random
from fractions import Fraction
import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "small_floats")
TYPES = {
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "FLOAT8E8M0": ml_dtypes.float8_e8m0fnu,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
}
WIDE = {"FLOAT": np.float32, "DOUBLE": np.float64, "FLOAT16": np.float16, "BFLOAT16": ml_dtypes.bfloat16}


def decoded(name):
    """The numbers of all codes, by ml_dtypes."""
    codes = np.arange(16 if name == "FLOAT4E2M1" else 256, dtype=np.uint8)
    return codes.view(TYPES[name]).astype(np.float64)


class Format:
    def __init__(self, name):
        self.name, self.values = name, decoded(name)
        finite = [(Fraction(float(v)), code) for code, v in enumerate(self.values) if np.isfinite(v) and not np.signbit(v)]
        self.finite = sorted(finite)
        self.greatest, self.greatest_code = self.finite[-1]
        self.signed = name != "FLOAT8E8M0"
        self.sign = 0 if not self.signed else 8 if name == "FLOAT4E2M1" else 128
        self.unsigned_zero = name.endswith("UZ")
        step = self.greatest - self.finite[-2][0]
        # What the numbers would go on with.
        self.beyond = self.greatest * 2 if not self.signed else self.greatest + step

    def nan(self, negative):
        if self.name == "FLOAT4E2M1":
            return 8
        if self.unsigned_zero:
            return 128
        if not self.signed:
            return 255
        return (0x7E if self.name == "FLOAT8E5M2" else 0x7F) | (128 if negative else 0)

    def overflow(self, negative):
        return (0x7C | (128 if negative else 0)) if self.name == "FLOAT8E5M2" else self.nan(negative)

    def encode(self, x, saturate, mode):
        negative = math.copysign(1, x) < 0
        if math.isnan(x):
            return self.nan(negative)
        sign = self.sign if negative else 0
        saturate = saturate or self.name == "FLOAT4E2M1"
        if math.isinf(x):
            return self.greatest_code | sign if saturate else self.overflow(negative)
        magnitude = abs(Fraction(x))
        if not self.signed:
            return self.encode_scale(magnitude, saturate, mode)
        numbers = self.finite + [(self.beyond, self.greatest_code + 1)]
        if magnitude >= self.beyond:
            code = self.greatest_code + 1
        else:
            index = max(i for i, (value, _) in enumerate(numbers) if value <= magnitude)
            if numbers[index][0] == magnitude:
                code = numbers[index][1]
            else:
                (low, down), (high, up) = numbers[index:index + 2]
                twice = 2 * magnitude
                code = down if twice < low + high or twice == low + high and down % 2 == 0 else up
        if code > self.greatest_code:
            return self.greatest_code | sign if saturate else self.overflow(negative)
        return code if code == 0 and self.unsigned_zero else code | sign

    def encode_scale(self, magnitude, saturate, mode):
        if magnitude == 0:
            return 0 if saturate else 255
        exponent = math.floor(math.log2(magnitude)) if magnitude > Fraction(1, 2**1000) else -1000
        while Fraction(2) ** exponent > magnitude:
            exponent -= 1
        while Fraction(2) ** (exponent + 1) <= magnitude:
            exponent += 1
        low = Fraction(2) ** exponent
        up = magnitude > low if mode == "up" else mode == "nearest" and magnitude * 2 >= low * 3
        code = exponent + 127 + (1 if up else 0)
        if 0 <= code <= 254:
            return code
        return min(max(code, 0), 254) if saturate else 255


def numbers():
    """f32: every number of every format, the middles between neighbours, their neighbours in f32, and what is special."""
    found = [0.0, math.inf, math.nan, 1e-45, 1e-40, 3.0e38, float(np.finfo(np.float32).max)]
    for name in TYPES:
        format = Format(name)
        values = [float(v) for v, _ in format.finite] + [float(min(format.beyond, Fraction(3e38)))]
        middles = [(a + b) / 2 for a, b in zip(values, values[1:])]
        for value in values + middles:
            value = np.float32(value)
            found += [value, np.nextafter(value, np.float32(0)), np.nextafter(value, np.float32(np.inf))]
    rng = random.Random(1)
    found += [rng.uniform(-1, 1) * 2.0 ** rng.randint(-20, 20) for _ in range(300)]
    both = np.array(sorted({float(np.float32(v)) for v in found if not math.isnan(v)}) + [math.nan], dtype=np.float32)
    return np.concatenate([both, -both])


def doubles(singles):
    """What only just differs from a number of f32: a rounding to that on the way would be seen."""
    finite = singles[np.isfinite(singles) & (singles != 0)].astype(np.float64)
    return np.concatenate([finite * (1 + 2.0**-40), finite * (1 - 2.0**-40), [1e300, -1e300, 1e-300, -1e-300, math.inf, math.nan]])


def main():
    os.makedirs(FOLDER, exist_ok=True)
    singles = numbers()
    arrays = {"in_x": singles, "in_x64": doubles(singles)}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, singles.shape),
              helper.make_tensor_value_info("x64", TensorProto.DOUBLE, arrays["in_x64"].shape)]
    nodes, outputs = [], []

    def cast(source, shape, to, name, expected, **attributes):
        nodes.append(helper.make_node("Cast", [source], [name], to=getattr(TensorProto, to), **attributes))
        outputs.append(helper.make_tensor_value_info(name, getattr(TensorProto, to), shape))
        arrays["out_" + name] = expected

    for name, ml in TYPES.items():
        format = Format(name)
        codes = np.arange(len(format.values), dtype=np.uint8)
        arrays["in_" + name] = codes
        inputs.append(helper.make_tensor_value_info(name, getattr(TensorProto, name), codes.shape))
        for wide, dtype in WIDE.items():
            with np.errstate(over="ignore"):
                expected = codes.view(ml).astype(np.float32).astype(dtype)
            stored = expected.view(np.uint16) if wide == "BFLOAT16" else expected
            cast(name, codes.shape, wide, f"{name}_to_{wide}", stored.view("V2") if wide == "BFLOAT16" else stored)
        modes = ["up", "down", "nearest"] if name == "FLOAT8E8M0" else ["up"]
        for source in ["x", "x64"]:
            values = arrays["in_" + source]
            for saturate in [1, 0]:
                for mode in modes:
                    expected = np.array([format.encode(float(v), saturate, mode) for v in values], dtype=np.uint8)
                    cast(source, values.shape, name, f"{source}_to_{name}_{saturate}_{mode}", expected, saturate=saturate,
                         round_mode=mode)
                    check(name, values, saturate, mode, expected)
    graph = helper.make_graph(nodes, "small_floats", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11, producer_name="small_floats.py")
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, os.path.join(FOLDER, "casts.onnx"))
    np.savez_compressed(os.path.join(FOLDER, "casts.npz"), **arrays)
    print(f"{len(nodes)} conversions of {len(singles)} and {len(arrays['in_x64'])} numbers")


def check(name, values, saturate, mode, expected):
    """Against ml_dtypes and onnx, from f32."""
    if values.dtype != np.float32:
        return
    ml = TYPES[name]
    if name == "FLOAT8E8M0":
        # Where onnx follows its table: positive normal numbers that are in range.
        with np.errstate(all="ignore"):
            theirs = onnx.numpy_helper.to_float8e8m0(values, bool(saturate), mode).view(np.uint8)
        among = (values >= 2.0**-126) & (values <= 2.0**127)
    else:
        with np.errstate(all="ignore"):
            theirs = (onnx.numpy_helper.saturate_cast(values, ml) if saturate else values.astype(ml)).view(np.uint8)
        # ml_dtypes makes positive zero of negative NaN, where there is no NaN; ONNX leaves that open.
        among = ~(np.isnan(values) & np.signbit(values)) | (name != "FLOAT4E2M1")
    differ = np.flatnonzero((theirs != expected) & among)
    assert not len(differ), (name, saturate, mode, [(values[i], theirs[i], expected[i]) for i in differ[:5]], len(differ))


if __name__ == "__main__":
    main()
