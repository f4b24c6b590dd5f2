"""The problems of kernels.txt: what each computes, a model of one operator for it, and the least time that it can take.

The bound of a problem follows from the problem and the machine's rates alone:

    max(arithmetic / multiply-adds per second,
        loads  · lanes · 4 / bytes per second that the first cache reads,
        stores · lanes · 4 / bytes per second that the first cache writes,
        bytes read and written / bandwidth of the first level that holds all operands)

Arithmetic counts vector operations that take the place of a multiply-add: a multiply-add itself, an addition, a maximum. Padding
counts as data, so that the products are those of the usual formula. Loads are the fewest of any tile of m rows by n vectors whose
m · n accumulators fit the registers, (m + n) / (m · n) for each multiply-add, but at least one for each vector of operands; where nothing
is reused, each operand is loaded once. Rates are those that `mcc bench` measures in the same run.
"""
import functools, math, re
import numpy as np

# Vector operations for each element, in the place of a multiply-add, as few as f32 accuracy takes: range reduction, a polynomial and
# scaling for exp; an estimate and a step of Newton's for a division, where a unit for it is no faster; both and a polynomial for erf.
EXP, DIV = 10, 3
ERF = EXP + DIV + 9
ELEMENT_OPERATIONS = {"relu": 1, "silu": EXP + DIV + 1, "gelu": ERF + 3, "hardswish": 4, "sigmoid": EXP + DIV + 1, "add": 1,
                      "tanh": EXP + DIV + 2, "transpose": 0, "softmax": EXP + 4, "layernorm": 5}


class Problem:
    def __init__(self, line):
        text, _, self.nets = line.partition("#")
        self.name, self.operator, *pairs = text.split()
        self.fields = dict(pair.split("=") for pair in pairs)
        self.x = self.numbers("x")

    def numbers(self, key, default=None):
        text = self.fields.get(key)
        return default if text is None else [int(word) for word in text.split(",")]

    def number(self, key, default=None):
        numbers = self.numbers(key)
        return default if numbers is None else numbers[0]

    def window(self):
        """Kernel, strides and padding (top, left, bottom, right) of an operator with windows."""
        two = lambda numbers: numbers * 2 if len(numbers) == 1 else numbers
        padding = self.numbers("p", [0])
        return two(self.numbers("r")), two(self.numbers("s", [1])), padding * 4 if len(padding) == 1 else padding

    def out_plane(self):
        r, s, p = self.window()
        return [(self.x[1 + i] + p[i] + p[2 + i] - r[i]) // s[i] + 1 for i in (0, 1)]


def read(path):
    with open(path) as lines:
        return [Problem(line) for line in lines if line.strip() and not line.startswith("#")]


class Work:
    """What a problem needs: vector arithmetic and bytes as counts of elements; `rows` by `columns` is the tile that may be reused."""

    def __init__(self, arithmetic, reads, writes, products=0, rows=1, columns=1, rereads=0):
        self.arithmetic, self.reads, self.writes = arithmetic, reads, writes
        self.products, self.rows, self.columns = products, rows, columns
        # Elements that are read again because nothing holds them in between.
        self.rereads = rereads

    def footprint_bytes(self):
        return 4 * (self.reads + self.writes)


def work(problem):
    f, x = problem.number, problem.x
    if problem.operator == "conv":
        groups, channels = f("g", 1), f("k")
        r, _, _ = problem.window()
        pixels = math.prod(problem.out_plane())
        weights = channels * (x[0] // groups) * math.prod(r)
        products, out = pixels * weights, pixels * channels
        arithmetic = products + out * ELEMENT_OPERATIONS.get(problem.fields.get("act"), 0)
        tile = (pixels, channels) if groups == 1 else None
        return Work(arithmetic, math.prod(x) + weights + channels, out, *((products, *tile) if tile else ()))
    if problem.operator == "gemm":
        m, k, n = f("m"), f("k"), f("n")
        return Work(m * k * n, m * k + k * n + n, m * n, m * k * n, m, n)
    if problem.operator == "matmul":
        b, m, k, n = f("b"), f("m"), f("k"), f("n")
        return Work(b * m * k * n, b * (m * k + k * n), b * m * n, b * m * k * n, m, n)
    if problem.operator == "lstm":
        t, n, h = f("t"), x[0], f("h")
        gates = t * h * (3 * ELEMENT_OPERATIONS["sigmoid"] + 2 * ELEMENT_OPERATIONS["tanh"] + 4)
        recurrent = 4 * h * h
        products = t * (4 * h * n + recurrent)
        return Work(products + gates, t * n + 4 * h * (n + 2) + recurrent, t * h, products, 1, 4 * h, rereads=(t - 1) * recurrent)
    if problem.operator in ("maxpool", "avgpool"):
        r, s, _ = problem.window()
        out = problem.out_plane()
        direct = math.prod(out) * (math.prod(r) - 1)
        # One dimension after the other.
        separate = x[1] * out[1] * (r[1] - 1) + math.prod(out) * (r[0] - 1)
        return Work(x[0] * min(direct, separate), math.prod(x), x[0] * math.prod(out))
    count = math.prod(x)
    if problem.operator == "globalpool":
        return Work(count, count, x[0])
    reads = {"add": 2 * count, "layernorm": count + 2 * x[-1]}.get(problem.operator, count)
    return Work(count * ELEMENT_OPERATIONS[problem.operator], reads, count)


@functools.cache
def tile_loads(rows, vectors, registers):
    """The fewest loads for each multiply-add of any tile, with a register for each vector of its columns and one for an element of a row."""
    best = math.inf
    for n in range(1, min(vectors, registers) + 1):
        m = min(rows, (registers - 1 - n) // n)
        if m >= 1:
            best = min(best, (m + n) / (m * n))
    return best


def level(rates, footprint_bytes):
    fits = [l for l in rates["levels"] if l["capacity_bytes"] is None or footprint_bytes <= l["capacity_bytes"]]
    return fits[0] if fits else rates["levels"][-1]


def bound(problem, rates):
    """Seconds, and the name of what bounds it."""
    w, lanes = work(problem), rates["lanes"]
    loads = (w.reads + w.rereads) / lanes
    if w.products:
        loads = max(loads, w.products / lanes * tile_loads(w.rows, math.ceil(w.columns / lanes), rates["vector_registers"]))
    first, holds = rates["levels"][0], level(rates, w.footprint_bytes())
    both = 4 * min(w.reads + w.rereads, w.writes)
    moved = (2 * both / holds["copy_bytes_per_s"] + (4 * (w.reads + w.rereads) - both) / holds["read_bytes_per_s"]
             + (4 * w.writes - both) / holds["write_bytes_per_s"])
    times = {"fma": w.arithmetic / rates["fma_per_s"], "loads": 4 * lanes * loads / first["read_bytes_per_s"],
             "stores": 4 * w.writes / first["write_bytes_per_s"], holds["name"]: moved}
    # In a level that is the first cache, what is moved is what is loaded and stored.
    by = max(times, key=times.get)
    return times[by], by


def aim(problem, rates):
    """The share of the bound that a problem should reach: most where there are many channels and weights stay near."""
    w = work(problem)
    weights = {"conv": w.reads - math.prod(problem.x or [0]), "gemm": problem.number("k", 0) * problem.number("n", 0)}.get(problem.operator)
    second = next((l["capacity_bytes"] for l in rates["levels"] if l["name"] == "L2"), 1 << 20)
    channels = problem.number("k" if problem.operator == "conv" else "n", 0)
    return 0.85 if weights is not None and channels >= 64 and 4 * weights <= second else 0.70


def model(problem, path, plain=False):
    """Writes the problem as a model. Images have their channels innermost, as between the kernels of a net, unless they are `plain` or
    have at most 4 channels, as the first layer's."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(1)
    nodes, weights, f = [], [], problem.number

    def constant(name, shape, spread=1.0):
        weights.append(numpy_helper.from_array((rng.standard_normal(shape) * spread).astype(np.float32), name))
        return name

    def node(operator, ins, out="y", **attributes):
        nodes.append(helper.make_node(operator, ins, [out], name=out, **attributes))
        return out

    def image(make, out_shape):
        """An operator on an image between two transposes."""
        c, h, w = problem.x
        source = "x"
        if c > 4 and not plain:
            source = node("Transpose", ["x"], "x_planes", perm=[0, 3, 1, 2])
        if plain:
            make(source, "y")
            return [("x", [1, c, h, w])], [1, *out_shape]
        node("Transpose", [make(source, "planes")], "y", perm=[0, 2, 3, 1])
        return [("x", [1, c, h, w] if c <= 4 else [1, h, w, c])], [1, *out_shape[1:], out_shape[0]]

    def activation(source, out):
        act = problem.fields.get("act")
        if act == "relu":
            return node("Relu", [source], out)
        return node("Mul", [source, node("Sigmoid", [source], "gate")], out)

    if problem.operator == "conv":
        r, s, p = problem.window()
        shape = [f("k"), problem.x[0] // f("g", 1), *r]

        def conv(source, out):
            ins = [source, constant("w", shape, 1 / math.sqrt(math.prod(shape[1:]))), constant("b", [f("k")])]
            act = "act" in problem.fields
            node("Conv", ins, "sums" if act else out, kernel_shape=r, strides=s, pads=p, group=f("g", 1))
            return activation("sums", out) if act else out

        inputs, out = image(conv, [f("k"), *problem.out_plane()])
    elif problem.operator in ("maxpool", "avgpool"):
        r, s, p = problem.window()
        name = {"maxpool": "MaxPool", "avgpool": "AveragePool"}[problem.operator]
        make = lambda source, out: node(name, [source], out, kernel_shape=r, strides=s, pads=p)
        inputs, out = image(make, [problem.x[0], *problem.out_plane()])
    elif problem.operator == "globalpool":
        inputs, out = image(lambda source, out: node("GlobalAveragePool", [source], out), [problem.x[0], 1, 1])
    elif problem.operator == "gemm":
        node("Gemm", ["x", constant("w", [f("k"), f("n")], 1 / math.sqrt(f("k"))), constant("b", [f("n")])])
        inputs, out = [("x", [f("m"), f("k")])], [f("m"), f("n")]
    elif problem.operator == "matmul":
        node("MatMul", ["x", "z"])
        inputs, out = [("x", [f("b"), f("m"), f("k")]), ("z", [f("b"), f("k"), f("n")])], [f("b"), f("m"), f("n")]
    elif problem.operator == "lstm":
        n, h, t = problem.x[0], f("h"), f("t")
        ins = ["x", constant("w", [1, 4 * h, n], 0.1), constant("r", [1, 4 * h, h], 0.1), constant("b", [1, 8 * h])]
        node("LSTM", ins, hidden_size=h)
        inputs, out = [("x", [t, 1, n])], [t, 1, 1, h]
    elif problem.operator == "softmax":
        node("Softmax", ["x"], axis=-1)
    elif problem.operator == "layernorm":
        node("LayerNormalization", ["x", constant("scale", problem.x[-1:]), constant("b", problem.x[-1:])], axis=-1)
    elif problem.operator == "silu":
        activation("x", "y")
    elif problem.operator in ("gelu", "hardswish"):
        node({"gelu": "Gelu", "hardswish": "HardSwish"}[problem.operator], ["x"])
    elif problem.operator == "add":
        node("Add", ["x", "z"])
        inputs, out = [("x", problem.x), ("z", problem.x)], problem.x
    elif problem.operator == "transpose":
        node("Transpose", ["x"], perm=[1, 0, 2])
        inputs, out = [("x", problem.x)], [problem.x[1], problem.x[0], problem.x[2]]
    else:
        raise ValueError(f"{problem.name}: unknown operator '{problem.operator}'")
    if problem.operator in ("softmax", "layernorm", "silu", "gelu", "hardswish"):
        inputs, out = [("x", problem.x)], problem.x
    value = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, re.sub(r"\W", "_", problem.name), [value(*i) for i in inputs], [value("y", out)], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return inputs
