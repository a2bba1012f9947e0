"""Writes tiny.bin: the container that torch.save makes, without needing PyTorch.

weight = [[1, 2, 3], [4, 5, 6]] as float32, map = [0, 4, 7] as int64.
"""

import io
import pickle
import struct
import sys
import types
import zipfile
from collections import OrderedDict

torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")


def _rebuild_tensor_v2(*args):
    raise NotImplementedError


_rebuild_tensor_v2.__module__ = "torch._utils"
_rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
utils._rebuild_tensor_v2 = _rebuild_tensor_v2
for name in ("FloatStorage", "LongStorage"):
    setattr(torch, name, type(name, (), {"__module__": "torch"}))
sys.modules.update({"torch": torch, "torch._utils": utils})


class Storage:
    def __init__(self, kind, key, length):
        self.id = ("storage", kind, key, "cpu", length)


class Tensor:
    def __init__(self, storage, shape, strides):
        self.args = (storage, 0, shape, strides, False, OrderedDict())

    def __reduce__(self):
        return _rebuild_tensor_v2, self.args


class Pickler(pickle.Pickler):
    def persistent_id(self, value):
        return value.id if isinstance(value, Storage) else None


state = OrderedDict(
    weight=Tensor(Storage(torch.FloatStorage, "0", 6), (2, 3), (3, 1)),
    map=Tensor(Storage(torch.LongStorage, "1", 3), (3,), (1,)),
)
pickled = io.BytesIO()
Pickler(pickled, protocol=2).dump(state)
entries = {
    "data.pkl": pickled.getvalue(),
    "byteorder": b"little",
    "data/0": struct.pack("<6f", 1, 2, 3, 4, 5, 6),
    "data/1": struct.pack("<3q", 0, 4, 7),
    "version": b"3\n",
}
with zipfile.ZipFile("tiny.bin", "w", zipfile.ZIP_STORED) as archive:
    for name, data in entries.items():
        archive.writestr(zipfile.ZipInfo(f"tiny/{name}"), data)
