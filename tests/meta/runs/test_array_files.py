"""Files of arrays: equal arrays have equal files, and any damage is noticed."""

import os

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save

from meta.runs import array_files

ARRAYS = {"w1": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.int32), "a.ä": np.zeros(())}
METADATA = {name: {"value": i, "of": name} for i, name in enumerate(["config", "method", "game", "seeds", "ä", "z"])}


def test_equal_arrays_and_metadata_give_equal_bytes(tmp_path):
    backwards = dict(reversed(METADATA.items()))
    for i in range(6):  # the library's order of six entries is one of 720
        array_files.replace_arrays(tmp_path / str(i), ARRAYS, METADATA if i % 2 else backwards)
    assert len({file.read_bytes() for file in tmp_path.iterdir()}) == 1
    arrays, metadata = array_files.load_arrays(tmp_path / "0")
    assert metadata == METADATA
    assert {name: (x.dtype, x.tolist()) for name, x in arrays.items()} == {
        name: (x.dtype, x.tolist()) for name, x in ARRAYS.items()
    }


def test_a_file_as_the_library_writes_it_is_read_too(tmp_path):
    (tmp_path / "file").write_bytes(save(ARRAYS, {"method": '"mfos"', "seeds": "3"}))
    arrays, metadata = array_files.load_arrays(tmp_path / "file")
    assert metadata == {"method": "mfos", "seeds": 3}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)


def test_numbers_of_half_precision_are_kept(tmp_path):
    """NumPy has no bfloat16, so that files of arrays have it in single precision."""
    tree = {name: jnp.arange(3, dtype=name) / 7 for name in ("bfloat16", "float16")}
    array_files.replace_arrays(tmp_path / "half", tree, {})
    for name, array in array_files.load_arrays(tmp_path / "half")[0].items():
        np.testing.assert_array_equal(array, np.asarray(tree[name], np.float32))


def test_one_bit_anywhere_is_noticed(tmp_path):
    file, given = tmp_path / "file", {"method": "mfos", "hidden": (4, 4), "rates": {10: 0.1, 2: 1e-7}}
    array_files.replace_arrays(file, ARRAYS, given)
    arrays, metadata = array_files.load_arrays(file)
    assert {name: x.tolist() for name, x in arrays.items()} == {name: x.tolist() for name, x in ARRAYS.items()}
    assert metadata == {"method": "mfos", "hidden": [4, 4], "rates": {"10": 0.1, "2": 1e-7}}
    whole = file.read_bytes()
    at = {whole.index(value) + shift for value, shift in ((b"mfos", 0), (b"1e-07", 0), (ARRAYS["w1"].tobytes(), 6))}
    for place in (*at, *range(8, len(whole), 17)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"^file: got '\S+'; [^\n]+$"):
            array_files.load_arrays(file)


def test_malicious_files_of_arrays_are_refused(tmp_path):
    file = tmp_path / "agent.safetensors"
    file.write_bytes(save({"x": np.zeros(3)}, {"config": "[" * 100_000}))
    with pytest.raises(ValueError, match=r"agent.safetensors'; it cannot be read \(maximum recursion depth"):
        array_files.load_arrays(file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match="cannot be read"):
        array_files.load_arrays(file)
