#!/bin/sh
# Builds mcc, compiles a trained model for this machine, links a C program with it and classifies twenty images.
set -eu
cd "$(dirname "$0")/../.."
out=target/digits-c
mkdir -p "$out"
cargo run --quiet -p mcc -- tests/data/models/digits_resnet8.onnx --target host --name digits -o "$out/digits.o"
cc -std=c11 -O2 -Wall -Wextra -I "$out" examples/digits-c/main.c "$out/digits.o" -o "$out/digits"
"$out/digits" examples/images/*.pgm
