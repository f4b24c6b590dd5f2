"""Other engines: what each runs a model from, in which settings, and the worker process that does.

    peers.py ENGINE MODEL INPUTS THREADS       a worker, as versus.py describes it

Settings: f32 weights and arithmetic (no bf16 or f16 on CPUs that have it), all optimizations on. ncnn and MNN do not read ONNX: `prepare`
makes their files with pnnx and mnnconvert, once for each model, in the folder of what is fetched.
"""
import glob, importlib.metadata, json, os, re, shutil, subprocess, sys, sysconfig, tempfile, time

from common import cache

PACKAGES = {"ort": "onnxruntime", "openvino": "openvino", "ncnn": "ncnn", "mnn": "MNN"}


def version(engine):
    package = PACKAGES[engine]
    return f"{package.lower()} {importlib.metadata.version(package)}"


def prepare(engine, model, index):
    """What the engine runs a model of these inputs from; raises where it cannot."""
    if engine in ("ort", "openvino"):
        return model
    folder = cache("peers", os.path.splitext(os.path.basename(model))[0])
    os.makedirs(folder, exist_ok=True)
    return {"ncnn": to_ncnn, "mnn": to_mnn}[engine](model, folder, index)


def to_ncnn(model, folder, index):
    made = f"{folder}/model.ncnn.param"
    if not os.path.exists(made):
        shutil.copy(model, f"{folder}/model.onnx")
        program = os.path.join(sysconfig.get_path("purelib"), "pnnx", "pnnx")
        shapes = ",".join(f"[{','.join(map(str, i['shape']))}]{ {'float32': 'f32', 'int64': 'i64', 'int32': 'i32'}[i['dtype']]}" for i in index)
        os.chmod(program, 0o755)
        subprocess.run([program, "model.onnx", "fp16=0", f"inputshape={shapes}"], cwd=folder, check=True, capture_output=True, timeout=300)
        os.remove(f"{folder}/model.onnx")
    return f"{folder}/model"


def to_mnn(model, folder, index):
    made = f"{folder}/model.mnn"
    if not os.path.exists(made):
        program = os.path.join(sysconfig.get_path("scripts"), "mnnconvert")
        subprocess.run([program, "-f", "ONNX", "--modelFile", model, "--MNNModel", made, "--bizCode", "mcc"], check=True, capture_output=True)
    return made


def ort(model, feeds, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_outputs()]
    return lambda: session.run(names, feeds)


def openvino(model, feeds, threads):
    import openvino

    core = openvino.Core()
    read = core.read_model(model)
    read.reshape({i.any_name: list(feeds[i.any_name].shape) for i in read.inputs})
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(read, "CPU", settings).create_infer_request()
    return lambda: request.infer(feeds, share_inputs=True)


def ncnn(model, feeds, threads):
    import ncnn
    import numpy as np

    net = ncnn.Net()
    net.opt.num_threads = threads
    for option in dir(net.opt):
        if option.startswith(("use_fp16", "use_bf16")):
            setattr(net.opt, option, False)
    if net.load_param(f"{model}.ncnn.param") or net.load_model(f"{model}.ncnn.bin"):
        raise RuntimeError("ncnn cannot load the model")
    # pnnx writes a program that shows which dimension of each input it takes for the batch.
    script = open(f"{model}_ncnn.py").read()
    batch = dict(re.findall(r'ex\.input\("(\w+)", ncnn\.Mat\(\w+\.numpy\(\), batch_index=(\d+)\)', script))
    outs = re.findall(r'ex\.extract\("(\w+)"\)', script)
    mats = []
    for place, value in enumerate(feeds.values()):
        value = value.astype(np.int32) if value.dtype == np.int64 else value
        name = f"in{place}"
        mats.append((name, (ncnn.Mat(value, batch_index=int(batch[name])) if name in batch else ncnn.Mat(value)).clone()))

    def run():
        with net.create_extractor() as extractor:
            for name, mat in mats:
                extractor.input(name, mat)
            for name in outs:
                status, _ = extractor.extract(name)
                if status:
                    raise RuntimeError(f"ncnn ends with {status}")

    return run


def mnn(model, feeds, threads):
    import MNN
    import numpy as np

    interpreter = MNN.Interpreter(model)
    session = interpreter.createSession({"backend": "CPU", "numThread": threads, "precision": "high"})
    types = {np.dtype(np.float32): MNN.Halide_Type_Float, np.dtype(np.int32): MNN.Halide_Type_Int}
    inputs = interpreter.getSessionInputAll(session)
    for name, value in feeds.items():
        interpreter.resizeTensor(inputs[name], value.shape)
    interpreter.resizeSession(session)
    pairs = []
    for name, value in feeds.items():
        value = value.astype(np.int32) if value.dtype == np.int64 else value
        host = MNN.Tensor(value.shape, types[value.dtype], value, MNN.Tensor_DimensionType_Caffe)
        pairs.append((interpreter.getSessionInput(session, name), host))
    outs = interpreter.getSessionOutputAll(session)

    def run():
        for tensor, host in pairs:
            tensor.copyFrom(host)
        interpreter.runSession(session)
        return [out.getHost() for out in outs.values()]

    return run


def avx2(engine):
    """Environment in which an engine keeps to AVX2. OpenVINO has a variable for it. The others ask the CPU which registers the system
    saves (xgetbv): in copies of their libraries the answer is always those of AVX."""
    if engine == "openvino":
        return {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    folder = cache("peers", f"avx2-{version(engine).replace(' ', '-')}")
    if not os.path.exists(folder):
        site = sysconfig.get_path("purelib")
        found = [f for pattern in COPIED[engine] for f in glob.glob(os.path.join(site, pattern))]
        with tempfile.TemporaryDirectory(dir=cache("peers")) as made:
            os.mkdir(f"{made}/site")
            for source in found:
                copy = shutil.copytree if os.path.isdir(source) else shutil.copy
                copy(source, os.path.join(made, "site", os.path.basename(source)))
            patched = sum(patch(f) for f in glob.glob(f"{made}/site/**/*.so*", recursive=True))
            if patched == 0:
                raise RuntimeError(f"{engine} does not ask the CPU in the way that is known")
            os.rename(f"{made}/site", folder)
    return {"PYTHONPATH": folder}


# What an engine's package consists of.
COPIED = {"ort": ["onnxruntime"], "ncnn": ["ncnn", "ncnn.libs"], "mnn": ["MNN", "_mnncengine*", "mnn.libs"]}
# xor %ecx,%ecx; xgetbv
ASKS = bytes.fromhex("31c9 0f01d0")
# xor %ecx,%ecx; mov $7,%al; nop: x87, SSE and AVX
ANSWERS = bytes.fromhex("31c9 b007 90")


def patch(path):
    """Replaces the questions of a library; returns how many there were."""
    with open(path, "rb") as file:
        data = file.read()
    if ASKS in data:
        with open(path, "wb") as file:
            file.write(data.replace(ASKS, ANSWERS))
    return data.count(ASKS)


ENGINES = {"ort": ort, "openvino": openvino, "ncnn": ncnn, "mnn": mnn}


def main():
    import numpy as np

    engine, model, folder, threads = sys.argv[1:5]
    with open(f"{folder}/index.json") as file:
        index = json.load(file)
    # Some engines print what they find.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    run = ENGINES[engine](model, {i["name"]: np.load(f"{folder}/{i['file']}") for i in index}, int(threads))
    run()
    print("READY {}", file=out, flush=True)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "quit":
            break
        end, times = time.perf_counter_ns() + float(words[1]) * 1e9, []
        while True:
            start = time.perf_counter_ns()
            run()
            now = time.perf_counter_ns()
            times.append(now - start)
            if now >= end:
                break
        print(json.dumps(times), file=out, flush=True)


if __name__ == "__main__":
    main()
