#!/usr/bin/env python3
"""Writes what the onnx package knows of the operators of the domain ai.onnx, for tests that look for what mcc lacks.

    schemas.py CACHE

Writes CACHE/onnx-schemas.json: a list with an entry for each operator and version, {name, since, deprecated, inputs, outputs,
types}. Inputs and outputs are names of types, the last of which stands for all that follow; types says for each name which element
types its tensors may have, by their numbers in TensorProto.
"""
import json, os, sys
from onnx import TensorProto, defs

NUMBERS = {"float": "FLOAT", "double": "DOUBLE"}


def numbers(allowed):
    found = []
    for name in allowed:
        if name.startswith("tensor("):
            name = name[len("tensor("):-1]
            found.append(TensorProto.DataType.Value(NUMBERS.get(name, name.upper())))
    return sorted(found)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    entries = []
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            entries.append({
                "name": schema.name,
                "since": schema.since_version,
                "deprecated": schema.deprecated,
                "inputs": [value.type_str for value in schema.inputs],
                "outputs": [value.type_str for value in schema.outputs],
                "types": {c.type_param_str: numbers(c.allowed_type_strs) for c in schema.type_constraints},
            })
    entries.sort(key=lambda entry: (entry["name"], entry["since"]))
    path = os.path.join(sys.argv[1], "onnx-schemas.json")
    with open(path + ".part", "w") as file:
        json.dump(entries, file, indent=1)
    os.replace(path + ".part", path)


if __name__ == "__main__":
    main()
