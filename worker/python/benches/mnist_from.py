"""examples/pytorch/mnist.py with initial values of a file: `mnist_from.py FILE`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples/pytorch"))

import mnist
from safetensors.torch import load_file

untrained = mnist.Net()
untrained.load_state_dict(load_file(sys.argv[1]))
mnist.Net = lambda: untrained
mnist.main()
