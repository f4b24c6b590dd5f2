"""Cases of the domain com.microsoft."""
import numpy as np
from onnx import helper

F32 = np.float32


def node(operator, inputs, outputs, domain="com.microsoft", **attributes):
    return helper.make_node(operator, inputs, outputs, domain=domain, **attributes)


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(F32)


def integers(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def scalar(value, dtype=F32):
    return np.array(value, dtype=dtype)


def activations(r):
    rng = np.random.default_rng(0)
    x, bias = floats(rng, 3, 4, 8) * 3, floats(rng, 8)
    for operator in ("Gelu", "QuickGelu", "FastGelu"):
        r.case("ms_" + operator.lower(), node(operator, ["x"], ["y"]), {"x": x}, ["y"])
    r.case("ms_quick_gelu_alpha", node("QuickGelu", ["x"], ["y"], alpha=0.7), {"x": x}, ["y"])
    for operator in ("BiasGelu", "FastGelu"):
        r.case("ms_%s_bias" % operator.lower(), node(operator, ["x", "b"], ["y"]), {"x": x, "b": bias}, ["y"])


def normalizations(r):
    rng = np.random.default_rng(1)
    x, skip, gamma, beta, bias = floats(rng, 2, 3, 16), floats(rng, 2, 3, 16), floats(rng, 16), floats(rng, 16), floats(rng, 16)
    given = {"x": x, "skip": skip, "gamma": gamma, "beta": beta, "bias": bias}
    some = lambda *names: {name: given[name] for name in names}
    ms = "com.microsoft"
    for opset in (9, 13):
        r.case("layer_normalization_opset%d" % opset, node("LayerNormalization", ["x", "gamma", "beta"], ["y", "m", "i"], "", epsilon=1e-3),
               some("x", "gamma", "beta"), ["y", "m", "i"], opsets={"": opset})
    r.case("layer_normalization_axis1", node("LayerNormalization", ["x", "s"], ["y"], "", axis=1),
           {"x": x, "s": floats(rng, 3, 16)}, ["y"], opsets={"": 13})
    r.case("simplified_layer_normalization", node("SimplifiedLayerNormalization", ["x", "gamma"], ["y"], "", epsilon=1e-3),
           some("x", "gamma"), ["y"])
    r.case("skip_layer_normalization", node("SkipLayerNormalization", ["x", "skip", "gamma", "beta", "bias"], ["y", "", "", "s"], ms,
                                            epsilon=1e-3), given, ["y", "s"])
    r.case("skip_layer_normalization_bare", node("SkipLayerNormalization", ["x", "skip", "gamma"], ["y"]), some("x", "skip", "gamma"), ["y"])
    r.case("skip_layer_normalization_broadcast", node("SkipLayerNormalization", ["x", "skip", "gamma", "beta"], ["y"]),
           {**some("x", "gamma", "beta"), "skip": skip[:1]}, ["y"])
    r.case("skip_simplified_layer_normalization", node("SkipSimplifiedLayerNormalization", ["x", "skip", "gamma", "bias"], ["y", "", "", "s"]),
           some("x", "skip", "gamma", "bias"), ["y", "s"])
    words, segments = rng.integers(0, 11, (2, 5)).astype(np.int32), rng.integers(0, 2, (2, 5)).astype(np.int32)
    tables = {"w": floats(rng, 11, 8), "p": floats(rng, 6, 8), "s": floats(rng, 2, 8), "g": floats(rng, 8), "b": floats(rng, 8)}
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=np.int32)
    embed = lambda inputs, outputs: node("EmbedLayerNormalization", inputs, outputs, epsilon=1e-3)
    r.case("embed_layer_normalization", embed(["i", "t", "w", "p", "s", "g", "b", "m"], ["y", "n"]),
           {"i": words, "t": segments, "m": mask}, ["y", "n"], tables)
    r.case("embed_layer_normalization_bare", embed(["i", "", "w", "p", "", "g", "b"], ["y", "n"]), {"i": words}, ["y", "n"],
           {k: v for k, v in tables.items() if k != "s"})
    r.case("embed_layer_normalization_positions", embed(["i", "t", "w", "p", "s", "g", "b", "m", "at"], ["y", "n", "sum"]),
           {"i": words, "t": segments, "m": mask, "at": rng.integers(0, 6, (2, 5)).astype(np.int32)}, ["y", "n", "sum"], tables)


def fusions(r):
    rng = np.random.default_rng(2)
    a, b = floats(rng, 2, 3, 4), floats(rng, 2, 4, 5)
    swap = lambda x: np.ascontiguousarray(np.swapaxes(x, -1, -2))
    for trans_a in (0, 1):
        for trans_b in (0, 1):
            r.case("fused_mat_mul_%d%d" % (trans_a, trans_b), node("FusedMatMul", ["a", "b"], ["y"], transA=trans_a, transB=trans_b, alpha=0.5),
                   {"a": swap(a) if trans_a else a, "b": swap(b) if trans_b else b}, ["y"])
    r.case("fused_mat_mul_batches", node("FusedMatMul", ["a", "b"], ["y"], transBatchA=1, transBatchB=1),
           {"a": floats(rng, 3, 2, 4), "b": floats(rng, 4, 2, 5)}, ["y"])
    r.case("fused_mat_mul_batches_swapped", node("FusedMatMul", ["a", "b"], ["y"], transBatchA=1, transA=1),
           {"a": floats(rng, 4, 2, 3), "b": floats(rng, 2, 4, 5)}, ["y"])
    r.case("transpose_mat_mul", node("TransposeMatMul", ["a", "b"], ["y"], transB=1), {"a": a, "b": swap(b)}, ["y"])
    x, w, bias, z = floats(rng, 1, 3, 6, 6), floats(rng, 4, 3, 3, 3), floats(rng, 4), floats(rng, 1, 4, 6, 6)
    for name, more in (("relu", {}), ("tanh", {}), ("sigmoid", {}), ("leaky_relu", {"activation_params": [0.2]}),
                       ("clip", {"activation_params": [-0.5, 1.5]}), ("hard_sigmoid", {"activation_params": [0.3, 0.4]})):
        word = "".join(part.capitalize() for part in name.split("_"))
        r.case("fused_conv_" + name, node("FusedConv", ["x", "w", "b"], ["y"], activation=word, pads=[1, 1, 1, 1], **more), {"x": x}, ["y"],
               {"w": w, "b": bias})
    r.case("fused_conv_residual", node("FusedConv", ["x", "w", "b", "z"], ["y"], activation="Relu", pads=[1, 1, 1, 1]),
           {"x": x, "z": z}, ["y"], {"w": w, "b": bias})
    r.case("fused_gemm", node("FusedGemm", ["a", "b", "c"], ["y"], activation="LeakyRelu", activation_alpha=0.1, transB=1, alpha=0.5),
           {"a": floats(rng, 3, 4), "b": floats(rng, 5, 4), "c": floats(rng, 5)}, ["y"])
    for upper in (0, 1):
        r.case("ms_trilu_%d" % upper, node("Trilu", ["x", "k"], ["y"], upper=upper), {"x": floats(rng, 2, 4, 5)}, ["y"],
               {"k": scalar(1, np.int64)})
    r.case("ms_pad", node("Pad", ["x", "p", "v"], ["y"], mode="constant"), {"x": floats(rng, 2, 3)}, ["y"],
           {"p": np.array([1, 0, 0, 2], dtype=np.int64), "v": np.array([0.5], dtype=F32)})
    r.case("ms_expand_dims", node("ExpandDims", ["x", "a"], ["y"]), {"x": floats(rng, 2, 3)}, ["y"], {"a": scalar(1, np.int32)})


def products(r):
    rng = np.random.default_rng(3)
    for dtype in (np.uint8, np.int8):
        for each in (False, True):
            name = "%s%s" % (np.dtype(dtype).name, "_each" if each else "")
            b = integers(rng, dtype, 6, 4)
            count = (4,) if each else ()
            b_scale = np.asarray(0.01 + rng.random(count) / 50, F32)
            b_zero = np.asarray(rng.integers(-3, 4, count) + (128 if dtype == np.uint8 else 0)).astype(dtype)
            weights = {"b": b, "s": b_scale, "z": b_zero, "bias": floats(rng, 4)}
            r.case("dynamic_quantize_mat_mul_" + name, node("DynamicQuantizeMatMul", ["a", "b", "s", "z", "bias"], ["y"]),
                   {"a": floats(rng, 2, 3, 6)}, ["y"], weights)
            r.case("mat_mul_integer_to_float_" + name, node("MatMulIntegerToFloat", ["a", "b", "t", "s", "u", "z", "bias"], ["y"]),
                   {"a": integers(rng, np.uint8, 2, 3, 6)}, ["y"], {**weights, "t": scalar(0.02), "u": scalar(120, np.uint8)})
            for trans in (0, 1):
                for quantized in (False, True):
                    inputs = ["a", "t", "u", "b", "s", "z", "c"] + (["v", "w"] if quantized else [])
                    given = {"b": b.T.copy() if trans else b, "s": b_scale, "z": b_zero, "t": scalar(0.02), "u": scalar(120, np.uint8),
                             "c": rng.integers(-500, 500, 4).astype(np.int32)}
                    if quantized:
                        given.update(v=scalar(0.1), w=scalar(99, np.uint8))
                    r.case("q_gemm_%s_%d%s" % (name, trans, "_quantized" if quantized else ""),
                           node("QGemm", inputs, ["y"], transB=trans, alpha=1.0 if quantized else 0.5), {"a": integers(rng, np.uint8, 3, 6)},
                           ["y"], given)
    r.case("dynamic_quantize_mat_mul_bare", node("DynamicQuantizeMatMul", ["a", "b", "s"], ["y"]), {"a": floats(rng, 3, 6)}, ["y"],
           {"b": integers(rng, np.int8, 6, 4), "s": scalar(0.02)})
    r.case("mat_mul_integer_to_float_bare", node("MatMulIntegerToFloat", ["a", "b", "t", "s"], ["y"]), {"a": integers(rng, np.int8, 3, 6)},
           ["y"], {"b": integers(rng, np.int8, 6, 4), "t": scalar(0.02), "s": scalar(0.01)})
    for bits in (2, 4, 8):
        for k, n, block in ((64, 6, 16), (40, 5, 32)):
            blocks = -(-k // block)
            b = integers(rng, np.uint8, n, blocks, block * bits // 8)
            scales = (0.01 + rng.random((n, blocks)) / 20).astype(F32)
            attributes = dict(K=k, N=n, bits=bits, block_size=block)
            name = "mat_mul_%d_bits_%d" % (bits, k)
            r.case(name, node("MatMulNBits", ["a", "b", "s"], ["y"], **attributes), {"a": floats(rng, 2, 3, k)}, ["y"],
                   {"b": b, "s": scales})
            packed = -(-blocks * bits // 8)
            zeros = integers(rng, np.uint8, n, packed)
            r.case(name + "_zeros", node("MatMulNBits", ["a", "b", "s", "z", "", "c"], ["y"], accuracy_level=1, **attributes),
                   {"a": floats(rng, 3, k)}, ["y"], {"b": b, "s": scales, "z": zeros, "c": floats(rng, n)})
    r.case("mat_mul_4_bits_float_zeros", node("MatMulNBits", ["a", "b", "s", "z"], ["y"], K=32, N=4, bits=4, block_size=16),
           {"a": floats(rng, 3, 32)}, ["y"], {"b": integers(rng, np.uint8, 4, 2, 8), "s": floats(rng, 4, 2), "z": floats(rng, 4, 2) + 8})


def quantized(r):
    rng = np.random.default_rng(4)
    for dtype, zero in ((np.uint8, 128), (np.int8, 3)):
        name = np.dtype(dtype).name
        x, other = integers(rng, dtype, 2, 4, 5, 6), integers(rng, dtype, 2, 4, 5, 6)
        scales = {"xs": scalar(0.03), "xz": scalar(zero, dtype), "os": scalar(0.02), "oz": scalar(zero - 2, dtype), "ys": scalar(0.05),
                  "yz": scalar(zero - 1, dtype)}
        used = lambda *names: {n: scales[n] for n in names}
        both, one = ["x", "xs", "xz", "o", "os", "oz", "ys", "yz"], ["x", "xs", "xz", "ys", "yz"]
        # ONNX Runtime scales before it adds, and has factors rounded to f32 on the way.
        r.case("q_linear_add_" + name, node("QLinearAdd", both, ["y"]), {"x": x, "o": other}, ["y"], scales, steps=1)
        r.case("q_linear_add_broadcast_" + name, node("QLinearAdd", both, ["y"]), {"x": x, "o": other[:1, :, :1]}, ["y"], scales, steps=1)
        r.case("q_linear_mul_" + name, node("QLinearMul", both, ["y"]), {"x": x, "o": other}, ["y"], scales, steps=1)
        r.case("q_linear_mul_broadcast_" + name, node("QLinearMul", both, ["y"]), {"x": x, "o": other[0, 0, 0]}, ["y"], scales, steps=1)
        single = used("xs", "xz", "ys", "yz")
        r.case("q_linear_leaky_relu_" + name, node("QLinearLeakyRelu", one, ["y"], alpha=0.1), {"x": x}, ["y"], single)
        narrow = {**single, "ys": scalar(1 / 256), "yz": scalar(0 if dtype == np.uint8 else -128, dtype)}
        r.case("q_linear_sigmoid_" + name, node("QLinearSigmoid", one, ["y"]), {"x": x}, ["y"], narrow)
        for axis, opset in ((-1, 13), (1, 13), (2, 12)):
            # Its table of exponentials is of integers.
            r.case("q_linear_softmax_%s_%d" % (name, axis % 4), node("QLinearSoftmax", one, ["y"], axis=axis, opset=opset), {"x": x}, ["y"],
                   narrow, steps=1)
        pool = dict(kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
        for last in (0, 1):
            r.case("q_linear_average_pool_%s_%d" % (name, last), node("QLinearAveragePool", one, ["y"], channels_last=last, **pool),
                   {"x": x}, ["y"], single, steps=1)
            r.case("q_linear_global_average_pool_%s_%d" % (name, last), node("QLinearGlobalAveragePool", one, ["y"], channels_last=last),
                   {"x": x}, ["y"], {**single, "ys": scalar(0.01)}, steps=1)
        r.case("q_linear_average_pool_%s_include" % name, node("QLinearAveragePool", one, ["y"], count_include_pad=1, ceil_mode=1, **pool),
               {"x": x}, ["y"], single, steps=1)
        r.case("q_linear_concat_" + name, node("QLinearConcat", ["ys", "yz", "x", "xs", "xz", "o", "os", "oz", "x", "ys", "yz"], ["y"], axis=1),
               {"x": x, "o": other}, ["y"], scales)
        r.case("q_linear_where_" + name, node("QLinearWhere", ["c", "x", "xs", "xz", "o", "os", "oz", "ys", "yz"], ["y"]),
               {"c": rng.random((4, 5, 6)) < 0.5, "x": x, "o": other}, ["y"], scales)
    for dtype, zero in ((np.uint8, 100), (np.int8, -3), (np.uint16, 30000), (np.int16, -30), (np.int32, 0)):
        name = np.dtype(dtype).name
        limits = np.iinfo(dtype)
        for axis in (None, 1):
            count = (4,) if axis else ()
            scales = np.asarray(0.01 + rng.random(count) / 50, F32)
            zeros = np.full(count, zero, dtype=dtype)
            attributes = {"axis": axis} if axis else {}
            what = "%s%s" % (name, "_axis" if axis else "")
            given = {"s": scales, "z": zeros}
            r.case("ms_dequantize_linear_" + what, node("DequantizeLinear", ["x", "s", "z"], ["y"], **attributes),
                   {"x": integers(rng, dtype, 2, 4, 3)}, ["y"], given)
            if dtype != np.int32:
                reach = float(scales.max()) * (limits.max - limits.min) * 0.6
                r.case("ms_quantize_linear_" + what, node("QuantizeLinear", ["x", "s", "z"], ["y"], **attributes),
                       {"x": (rng.uniform(-1, 1, (2, 4, 3)) * reach).astype(F32)}, ["y"], given)


def reduced(r):
    """ONNX Runtime has no kernel of QLinearReduceMean; it is the mean of the numbers, quantized. A mean at a border may round elsewhere."""
    rng = np.random.default_rng(7)
    default = lambda operator, inputs, outputs, **attributes: node(operator, inputs, outputs, "", **attributes)
    for dtype, zero in ((np.uint8, 128), (np.int8, 3)):
        given = {"xs": scalar(0.03), "xz": scalar(zero, dtype), "ys": scalar(0.01), "yz": scalar(zero - 1, dtype)}
        for name, attributes in (("all", {}), ("axes", {"axes": [1, -1]}), ("gone", {"axes": [-2], "keepdims": 0})):
            meaning = [default("DequantizeLinear", ["x", "xs", "xz"], ["n"]), default("ReduceMean", ["n"], ["m"], **attributes),
                       default("QuantizeLinear", ["m", "ys", "yz"], ["y"])]
            r.case("q_linear_reduce_mean_%s_%s" % (name, np.dtype(dtype).name),
                   node("QLinearReduceMean", ["x", "xs", "xz", "ys", "yz"], ["y"], **attributes), {"x": integers(rng, dtype, 2, 4, 5)}, ["y"],
                   given, steps=1, meaning=meaning)


def attention(r):
    rng = np.random.default_rng(5)
    heads, size, batch, length, hidden = 2, 4, 2, 5, 6
    width = heads * size
    x, weights, bias = floats(rng, batch, length, hidden), floats(rng, hidden, 3 * width), floats(rng, 3 * width)
    constants = {"w": weights, "b": bias}
    past = floats(rng, 2, batch, heads, 3, size)
    masks = {"none": None, "ends": np.array([3, 5], dtype=np.int32), "ranges": np.array([4, 5, 0, 2], dtype=np.int32),
             "keys": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=np.int32), "pairs": rng.integers(0, 2, (batch, length, length)).astype(np.int32)}
    for name, mask in masks.items():
        for one_way in (0, 1):
            inputs = {"x": x, **({} if mask is None else {"m": mask})}
            r.case("attention_%s%s" % (name, "_one_way" if one_way else ""),
                   node("Attention", ["x", "w", "b", "" if mask is None else "m"], ["y"], num_heads=heads, unidirectional=one_way), inputs, ["y"], constants)
    r.case("attention_past", node("Attention", ["x", "w", "b", "", "p"], ["y", "next"], num_heads=heads, unidirectional=1),
           {"x": x, "p": past}, ["y", "next"], constants)
    r.case("attention_bias_scale", node("Attention", ["x", "w", "b", "", "", "a"], ["y"], num_heads=heads, scale=0.3),
           {"x": x, "a": floats(rng, 1, heads, length, length)}, ["y"], constants)
    r.case("attention_sizes", node("Attention", ["x", "w", "b"], ["y"], num_heads=heads, qkv_hidden_sizes=[8, 8, 6]), {"x": x}, ["y"],
           {"w": floats(rng, hidden, 22), "b": floats(rng, 22)})
    for dtype in (np.uint8, np.int8):
        for each in (False, True):
            count = (3 * width,) if each else ()
            given = {"w": integers(rng, dtype, hidden, 3 * width), "b": bias, "xs": scalar(0.02), "ws": np.asarray(0.01 + rng.random(count) / 90, F32),
                     "xz": scalar(120, np.uint8), "wz": np.full(count, 110 if dtype == np.uint8 else 4, dtype=dtype)}
            r.case("q_attention_%s%s" % (np.dtype(dtype).name, "_each" if each else ""),
                   node("QAttention", ["x", "w", "b", "xs", "ws", "m", "xz", "wz"], ["y"], num_heads=heads),
                   {"x": integers(rng, np.uint8, batch, length, hidden), "m": masks["ends"]}, ["y"], given)
    q, k, v = floats(rng, batch, length, width), floats(rng, batch, 7, width), floats(rng, batch, 7, width)
    multi = lambda inputs, outputs=("y",), **more: node("MultiHeadAttention", inputs, list(outputs), num_heads=heads, **more)
    r.case("multi_head_attention", multi(["q", "k", "v"]), {"q": q, "k": k, "v": v}, ["y"])
    r.case("multi_head_attention_bias", multi(["q", "k", "v", "b"]), {"q": q, "k": k, "v": v}, ["y"], {"b": bias})
    r.case("multi_head_attention_one_way", multi(["q", "q", "q"], unidirectional=1), {"q": q}, ["y"])
    r.case("multi_head_attention_padding", multi(["q", "k", "v", "", "m"]),
           {"q": q, "k": k, "v": v, "m": rng.integers(0, 2, (batch, 7)).astype(np.int32)}, ["y"])
    r.case("multi_head_attention_scores", multi(["q", "k", "v", "", "", "a"], scale=0.4),
           {"q": q, "k": k, "v": v, "a": floats(rng, batch, 1, length, 7)}, ["y"])
    r.case("multi_head_attention_past", multi(["q", "k", "v", "", "", "", "pk", "pv"], ("y", "nk", "nv")),
           {"q": q, "k": q + 1, "v": q - 1, "pk": floats(rng, batch, heads, 3, size), "pv": floats(rng, batch, heads, 3, size)}, ["y", "nk", "nv"])
    r.case("multi_head_attention_heads", multi(["q", "k", "v"]), {"q": q, "k": floats(rng, batch, heads, 7, size), "v": floats(rng, batch, heads, 7, size)},
           ["y"])
    places = rng.integers(0, 9, (batch, length)).astype(np.int64)
    for interleaved in (0, 1):
        cache = {"c": floats(rng, 10, size // 2), "s": floats(rng, 10, size // 2)}
        rotary = lambda **more: node("RotaryEmbedding", ["x", "p", "c", "s"], ["y"], interleaved=interleaved, **more)
        r.case("ms_rotary_embedding_%d" % interleaved, rotary(), {"x": q, "p": places}, ["y"], cache)
        r.case("ms_rotary_embedding_offset_%d" % interleaved, rotary(), {"x": q, "p": np.array([4], dtype=np.int64)}, ["y"], cache)
        r.case("ms_rotary_embedding_heads_%d" % interleaved, rotary(), {"x": floats(rng, batch, heads, length, size), "p": places}, ["y"], cache)
        r.case("ms_rotary_embedding_partial_%d" % interleaved, rotary(num_heads=heads, rotary_embedding_dim=4),
               {"x": floats(rng, batch, length, heads * 6), "p": places}, ["y"], cache)


def recurrent(r):
    rng = np.random.default_rng(6)
    steps, features, hidden = 5, 6, 4
    for batch in (1, 2):
        for direction in ("forward", "reverse", "bidirectional"):
            for dtype in (np.int8, np.uint8):
                for each in (False, True):
                    ways = 2 if direction == "bidirectional" else 1
                    count = (ways, 4 * hidden) if each else (ways,)
                    zero = 0 if dtype == np.int8 else 128
                    scale = lambda: np.asarray(0.002 + rng.random(count) / 300, F32)
                    zeros = np.full(count, zero, dtype=dtype)
                    given = {"w": integers(rng, dtype, ways, features, 4 * hidden), "r": integers(rng, dtype, ways, hidden, 4 * hidden),
                             "b": floats(rng, ways, 8 * hidden), "ws": scale(), "wz": zeros, "rs": scale(), "rz": zeros}
                    r.case("dynamic_quantize_lstm_%s_%d_%s%s" % (direction, batch, np.dtype(dtype).name, "_each" if each else ""),
                           node("DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"], ["y", "h", "c"],
                                hidden_size=hidden, direction=direction), {"x": floats(rng, steps, batch, features)}, ["y", "h", "c"], given,
                           tolerance=1e-4)
    given = {"w": integers(rng, np.int8, 1, features, 4 * hidden), "r": integers(rng, np.int8, 1, hidden, 4 * hidden),
             "b": floats(rng, 1, 8 * hidden), "ws": np.array([0.004], F32), "wz": np.array([0], np.int8), "rs": np.array([0.004], F32),
             "rz": np.array([0], np.int8), "p": floats(rng, 1, 3 * hidden)}
    r.case("dynamic_quantize_lstm_states",
           node("DynamicQuantizeLSTM", ["x", "w", "r", "b", "n", "h0", "c0", "p", "ws", "wz", "rs", "rz"], ["y", "h", "c"], hidden_size=hidden, clip=2.0),
           {"x": floats(rng, steps, 2, features), "n": np.array([5, 3], np.int32), "h0": floats(rng, 1, 2, hidden), "c0": floats(rng, 1, 2, hidden)},
           ["y", "h", "c"], given, tolerance=1e-4)


def record(recorder):
    activations(recorder)
    normalizations(recorder)
    fusions(recorder)
    products(recorder)
    quantized(recorder)
    reduced(recorder)
    attention(recorder)
    recurrent(recorder)
