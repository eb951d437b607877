import pytest
import torch

from ct_dip.devices import pick_device
from ct_dip.errors import InputError


def test_auto_takes_what_there_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto").type == "cuda"
    assert pick_device("cuda:0") == torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == torch.device("cpu")
    with pytest.raises(InputError, match="use device cpu"):
        pick_device("cuda")
    with pytest.raises(InputError, match="abacus"):
        pick_device("abacus")
