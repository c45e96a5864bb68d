"""Files of arrays: what is equal has equal files."""

import numpy as np
from safetensors.numpy import save

from meta.runs import tensors

ARRAYS = {"w1": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.int32), "a.ä": np.zeros(())}
METADATA = {name: {"value": i, "of": name} for i, name in enumerate(["config", "method", "game", "seeds", "ä", "z"])}


def test_equal_arrays_and_metadata_give_equal_bytes(tmp_path):
    backwards = dict(reversed(METADATA.items()))
    for i in range(6):  # the library's own order of six entries is one of 720
        tensors.replace(tmp_path / str(i), ARRAYS, METADATA if i % 2 else backwards)
    assert len({file.read_bytes() for file in tmp_path.iterdir()}) == 1
    arrays, metadata = tensors.load(tmp_path / "0")
    assert metadata == METADATA
    assert {name: (x.dtype, x.tolist()) for name, x in arrays.items()} == {
        name: (x.dtype, x.tolist()) for name, x in ARRAYS.items()
    }


def test_a_file_as_the_library_writes_it_is_read_too(tmp_path):
    (tmp_path / "file").write_bytes(save(ARRAYS, {"method": '"mfos"', "seeds": "3"}))
    arrays, metadata = tensors.load(tmp_path / "file")
    assert metadata == {"method": "mfos", "seeds": 3}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
