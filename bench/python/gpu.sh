#!/bin/bash
# The Python package on a GPU host: its tests for GPUs, an MNIST script under the profiler before and after the changed import,
# and the speed against PyTorch's DataLoader.
# usage: bench/python/gpu.sh WHEEL OUT [arguments of bench/python/speed.py]
# PYTHON: one with torch and torchvision; WHEELS: a folder with wheels of pytest and its needs, if that Python has none;
# STEPS: some of "tests profile speed".
set -u
wheel=$1 out=$2
shift 2
cd "$(dirname "$0")/../.." || exit 1
python=${PYTHON:-python3} steps=${STEPS:-tests profile speed}
site=$(mktemp -d)
mkdir -p "$out"
"$python" -m pip install -q --no-index --no-deps --target "$site" "$wheel" ${WHEELS:+"$WHEELS"/*.whl} || exit 1
export PYTHONPATH=$site
export PATH=$site/bin:$PATH
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
nproc
"$python" -c 'import sys, torch, torchvision, millrace
print("Python", sys.version.split()[0], "torch", torch.__version__, "torchvision", torchvision.__version__, "millrace", millrace.__version__)'

if [[ $steps == *tests* ]]; then
    timeout 240 "$python" -m pytest -q -p no:cacheprovider tests/python/test_gpu.py tests/python/test_core_torch.py 2>&1 | tail -60
fi
if [[ $steps == *profile* ]]; then
    sed 's/^from torch.utils.data import DataLoader.*/from millrace import DataLoader/' examples/python/mnist.py >"$out/mnist_millrace.py"
    for script in examples/python/mnist.py "$out/mnist_millrace.py"; do
        name=$(basename "$script" .py)
        echo "--- $name"
        timeout 60 "$python" "$script" --epochs 2
        timeout 90 millrace profile -q -f -o "$out/$name.sqlite" -- "$python" "$script" --epochs 2
        timeout 60 millrace analyze "$out/$name.sqlite" | head -12
    done
fi
if [[ $steps == *speed* ]]; then
    "$python" bench/python/speed.py --json "$out/speed.json" "$@"
fi
rm -rf "$site"
