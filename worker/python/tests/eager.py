"""Imports torch without what only compilers and tensors without values need of it: a third of the time that it takes.
The process ends without libtorch's destructors, once all of Python has ended.

Each rank of a test imports torch, which takes longer than the steps of most scripts. Scripts of tests import this
first; `python eager.py SCRIPT` runs a script of others so. Users' ranks and benches import torch as it is.
"""

import ctypes
import gc
import os
import runpy
import sys
import types
from importlib.metadata import version

#: What torch/__init__.py imports for what it registers: how operators without a kernel for it treat meta and fake
#: tensors, in Python, with decompositions of operators for compilers.
META = "torch._meta_registrations"

if "torch" not in sys.modules:
    # What an import makes stays: looking for what of it could be freed takes time, now and at the process's end.
    gc.disable()
    # With the torch that CI has; 2.15 has its random numbers from there.
    leaves_out = version("torch").startswith("2.11.")
    if leaves_out:
        sys.modules[META] = types.ModuleType(META)
    import torch

    if leaves_out:
        # Whoever asks for it later has it imported then.
        del sys.modules[META], torch._meta_registrations
    gc.freeze()
    gc.enable()
else:
    import torch

# Optimizers import torch._dynamo to tell it that they are not to be compiled, and FSDP2 and process groups ask it what
# is. Nothing is compiled here, and the import takes as long as that of torch: this is what they use of it. Other
# modules of it, such as its configuration, are its own.
_dynamo = types.ModuleType("torch._dynamo")
_dynamo.__path__ = [os.path.join(path, "_dynamo") for path in torch.__path__]
_dynamo.disable = lambda function, *_, **__: function
_dynamo.graph_break = lambda: None
_dynamo.is_compiling = lambda: False
_dynamo.trace_rules = types.SimpleNamespace(clear_lru_cache=lambda: None)
_autograd = types.ModuleType("torch._dynamo.compiled_autograd")
_autograd.compiled_autograd_enabled = False
_autograd.compiled_autograd_enabled_force_eager = False
_autograd.in_compiled_autograd_region = False
if _dynamo.__name__ not in sys.modules:
    sys.modules |= {module.__name__: module for module in (_dynamo, _autograd)}
    torch._dynamo, _dynamo.compiled_autograd = _dynamo, _autograd

# Otherwise libtorch takes down all of its tables, one by one, for 0.3 s. Whatever C code has in buffers of its own is lost.
_libc = ctypes.CDLL(None)
_libc.on_exit(_libc._exit, None)

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
