"""Files of arrays: what is damaged is noticed, wherever it is."""

import numpy as np
import pytest
from safetensors.numpy import save

from meta.runs import tensors

ARRAYS = {"w1": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.int32), "c": np.zeros(())}
METADATA = {"method": "mfos", "config": {"seed": 3, "hidden": (4, 4), "rates": {10: 0.1, 2: 1e-7}}}


def test_one_bit_anywhere_is_noticed(tmp_path):
    file = tmp_path / "file"
    tensors.replace(file, ARRAYS, METADATA)
    arrays, metadata = tensors.load(file)
    assert {name: x.tolist() for name, x in arrays.items()} == {name: x.tolist() for name, x in ARRAYS.items()}
    assert metadata == {"method": "mfos", "config": {"seed": 3, "hidden": [4, 4], "rates": {"10": 0.1, "2": 1e-7}}}
    whole = file.read_bytes()
    at = {whole.index(value) + shift for value, shift in ((b"mfos", 0), (b"1e-07", 0), (ARRAYS["w1"].tobytes(), 6))}
    for place in (*at, *range(8, len(whole), 17)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"^file: got '\S+'; [^\n]+$"):
            tensors.load(file)


def test_a_file_without_a_digest_is_read_too(tmp_path):
    (tmp_path / "file").write_bytes(save(ARRAYS, {"method": '"mfos"'}))
    arrays, metadata = tensors.load(tmp_path / "file")
    assert metadata == {"method": "mfos"}
    np.testing.assert_array_equal(arrays["w1"], ARRAYS["w1"])
