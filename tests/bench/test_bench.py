"""What the programs of this folder compute without a clock. Run by tests/bench.rs, or: python -m unittest"""
import math, os, tempfile, unittest
import numpy as np, onnx, onnxruntime

import arm, common, peers, problems
from problems import Problem

RATES = {"lanes": 8, "vector_registers": 16, "fma_per_s": 64e9, "levels": [
    {"name": "L1", "capacity_bytes": 32 << 10, "read_bytes_per_s": 256e9, "write_bytes_per_s": 128e9, "copy_bytes_per_s": 256e9},
    {"name": "L2", "capacity_bytes": 1 << 20, "read_bytes_per_s": 128e9, "write_bytes_per_s": 64e9, "copy_bytes_per_s": 96e9},
    {"name": "memory", "capacity_bytes": None, "read_bytes_per_s": 16e9, "write_bytes_per_s": 8e9, "copy_bytes_per_s": 12e9}]}
ALL = problems.read(f"{common.HERE}/kernels.txt")


def run(path, feeds):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


class Problems(unittest.TestCase):
    def test_the_list_has_every_kind_of_kernel(self):
        names = [p.name for p in ALL]
        self.assertGreaterEqual(len(names), 60)
        self.assertEqual(len(set(names)), len(names))
        depthwise = {(p.number("r"), p.number("s", 1)) for p in ALL if p.number("g", 1) > 1}
        self.assertEqual(depthwise, {(3, 1), (3, 2), (5, 1), (5, 2)})
        self.assertLessEqual({1, 128}, {p.number("m") for p in ALL if p.operator == "gemm"})
        self.assertLessEqual({"matmul", "maxpool", "avgpool", "globalpool", "softmax", "layernorm", "gelu"}, {p.operator for p in ALL})

    def test_products_are_those_of_the_model(self):
        with tempfile.TemporaryDirectory() as folder:
            for problem in ALL:
                path = f"{folder}/{problem.name}.onnx"
                inputs = problems.model(problem, path)
                made = onnx.load(path)
                values = sum(math.prod(shape) for _, shape in inputs) + sum(math.prod(t.dims) for t in made.graph.initializer)
                out = math.prod(d.dim_value for d in made.graph.output[0].type.tensor_type.shape.dim)
                w = problems.work(problem)
                self.assertEqual((w.reads, w.writes), (values, out), problem.name)
                if problem.operator in ("conv", "gemm", "matmul"):
                    (macs, channels, depthwise), = arm.contractions(path).values()
                    self.assertEqual(channels, problem.number("k" if problem.operator == "conv" else "n"), problem.name)
                    extra = w.writes * problems.ELEMENT_OPERATIONS.get(problem.fields.get("act"), 0)
                    self.assertEqual(macs, w.arithmetic - extra, problem.name)
                    self.assertEqual(depthwise, problem.number("g", 1) > 1, problem.name)

    def test_orders_of_elements_do_not_change_values(self):
        for line in ("a conv x=8,9,7 k=6 r=3,1 s=2,1 p=1,0,2,0 act=silu", "b maxpool x=8,9,7 r=3 s=2 p=1", "c globalpool x=8,5,3"):
            with tempfile.TemporaryDirectory() as folder:
                problem = Problem(line)
                problems.model(problem, f"{folder}/a.onnx")
                problems.model(problem, f"{folder}/b.onnx", plain=True)
                x = np.random.default_rng(3).standard_normal((1, *problem.x), dtype=np.float32)
                inner = run(f"{folder}/a.onnx", {"x": np.ascontiguousarray(x.transpose(0, 2, 3, 1))})
                np.testing.assert_allclose(inner.transpose(0, 3, 1, 2), run(f"{folder}/b.onnx", {"x": x}), rtol=1e-4, atol=1e-5)

    def test_bounds_are_those_of_what_is_scarce(self):
        # 128³ products at 64 G/s; operands of 192 KiB lie in L2.
        seconds, by = problems.bound(Problem("a gemm m=128 k=128 n=128"), RATES)
        self.assertEqual((seconds, by), (128**3 / 64e9, "fma"))
        # One row: weights of 16 MiB come from memory, once.
        seconds, by = problems.bound(Problem("b gemm m=1 k=2048 n=2048"), RATES)
        read, written = 4 * (2048 + 2048 * 2048 + 2048), 4 * 2048
        self.assertEqual(by, "memory")
        self.assertAlmostEqual(seconds, 2 * written / 12e9 + (read - written) / 16e9)
        # One row in the first cache: a load for each vector of weights, and one of the row for each 14 of these.
        seconds, by = problems.bound(Problem("c gemm m=1 k=56 n=112"), RATES)
        self.assertEqual(by, "loads")
        self.assertAlmostEqual(seconds, 56 * 14 * (15 / 14) * 32 / 256e9)

    def test_tiles_keep_to_the_registers(self):
        # 14 accumulators and one vector of weights, or 6 × 2, with a register for the other operand.
        self.assertEqual(problems.tile_loads(1000, 1, 16), 15 / 14)
        self.assertEqual(problems.tile_loads(1000, 4, 16), min((6 + 2) / 12, (4 + 3) / 12, (2 + 4) / 8))
        self.assertEqual(problems.tile_loads(1, 100, 16), (1 + 7) / 7)


class Peers(unittest.TestCase):
    def test_questions_of_a_library_are_answered(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(b"a" + peers.ASKS + b"b" + peers.ASKS[1:])
            file.flush()
            self.assertEqual(peers.patch(file.name), 1)
            with open(file.name, "rb") as patched:
                self.assertEqual(patched.read(), b"a" + peers.ANSWERS + b"b" + peers.ASKS[1:])
        self.assertEqual(len(peers.ASKS), len(peers.ANSWERS))


class Arm(unittest.TestCase):
    def test_nodes_count_where_they_multiply(self):
        class Compiled:
            counts = {"pad": np.array([0] * 8 + [50]), "conv": np.array([400] + [0] * 7 + [50]), "deep": np.array([100] + [0] * 7 + [100])}
            functions = {"pad": [["a"]], "conv": [["a", "relu"], ["b"]], "deep": [["c"]], "other": [["d"]]}
            executed = lambda self: 700

        nodes = {"a": (1000, 64, False), "b": (600, 64, False), "c": (320, 64, True), "d": (9, 64, False)}
        found, held = arm.shares(Compiled(), nodes)
        self.assertEqual({kind: list(work) for kind, work in found.items()},
                         {"share": [1920, 700], "dense": [1600, 450], "depthwise": [320, 200]})
        self.assertEqual([arm.fraction(work) for work in (found["dense"], [0, 0])], [round(1600 / 4 / 450, 4), None])
        self.assertEqual(held, {"conv": (1600, "dense"), "deep": (320, "depthwise")})


if __name__ == "__main__":
    unittest.main()
