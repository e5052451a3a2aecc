"""Which GPUs are the server's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import SourceError
from exporter.sources.device import Identity
from exporter.sources.gpu_owner import Evidence, choose

A = Identity(0, "GPU-aaaa", "NVIDIA A100", "00000000:01:00.0", minor=1)
B = Identity(1, "GPU-bbbb", "NVIDIA A100", "00000000:02:00.0", minor=0)
C = Identity(2, "GPU-cccc", "NVIDIA A100", "00000000:03:00.0", minor=2)
NODE = (A, B, C)
MIXED = (
    Identity(0, "GPU-3090", "RTX 3090", "00000000:01:00.0"),
    Identity(1, "GPU-5090", "RTX 5090", "00000000:02:00.0"),
)
SLICES = (
    Identity(0, "MIG-1", "slice", mig_index=0, parent_uuid="GPU-aaaa"),
    Identity(0, "MIG-2", "slice", mig_index=1, parent_uuid="GPU-aaaa"),
)
AUTO = ("auto",)


def env(**values: str) -> Evidence:
    return Evidence(environment=values)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [(("1",), (B,)), (("GPU-cccc",), (C,)), (("GPU-c",), (C,)), (("GPU-cccc", "0"), (C, A)), (("0", "GPU-aaaa"), (A,))],
)
def test_configuration_wins(wanted: tuple[str, ...], found: tuple[Identity, ...]) -> None:
    """Indices, UUIDs and unambiguous starts of UUIDs are taken as given, each GPU once, whatever else is known."""
    evidence = Evidence(pod_devices=frozenset({"GPU-bbbb"}), environment={"NVIDIA_VISIBLE_DEVICES": "GPU-aaaa"})
    chosen = choose(NODE, wanted, evidence)
    assert (chosen.devices, chosen.rule) == (found, "configured")


def test_a_mig_slice_is_configured_by_index_or_uuid() -> None:
    """`0:1` and `MIG-2` are the same slice; `0` alone is none of them."""
    assert (
        choose(SLICES, ("0:1",), Evidence()).devices == choose(SLICES, ("MIG-2",), Evidence()).devices == (SLICES[1],)
    )
    with pytest.raises(SourceError):
        choose(SLICES, ("0",), Evidence())


@pytest.mark.parametrize("name", ["7", "GPU-dddd", "GPU-", "A100"])
def test_a_configured_gpu_that_is_not_there_is_an_error_that_lists_what_is(name: str) -> None:
    """Another GPU is never watched instead."""
    with pytest.raises(SourceError, match=f"{name} is configured but cannot be seen; visible: GPU-aaaa") as error:
        choose(NODE, (name,), Evidence())
    assert error.value.reason == "gpu_not_found"


def test_the_kubelet_comes_before_the_environment() -> None:
    """Pod resources decide by UUID, in NVML's order."""
    evidence = Evidence(frozenset({"GPU-cccc", "GPU-bbbb"}), {"NVIDIA_VISIBLE_DEVICES": "GPU-aaaa"})
    chosen = choose(NODE, AUTO, evidence)
    assert (chosen.devices, chosen.rule) == ((B, C), "pod_resources")


@pytest.mark.parametrize(("given_id", "found"), [("GPU-bbbb::3", B), ("nvidia0", B), ("nvidia1", A), ("GPU-aaaa", A)])
def test_the_kubelets_spellings_are_understood(given_id: str, found: Identity) -> None:
    """Time-sliced replicas carry a suffix, and GKE names GPUs by the number of their device file, not by index."""
    assert choose(NODE, AUTO, Evidence(frozenset({given_id}))).devices == (found,)


def test_what_the_kubelet_gave_but_cannot_be_seen_is_noted() -> None:
    """A rule that names a GPU that is not there gives way and says so."""
    chosen = choose((A,), AUTO, Evidence(frozenset({"GPU-bbbb"}), {"NVIDIA_VISIBLE_DEVICES": "GPU-aaaa"}))
    assert chosen.rule == "environment"
    assert chosen.notes == ("the kubelet gave this pod GPU-bbbb, which cannot be seen from here",)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-bbbb"}, (B,)),
        ({"NVIDIA_VISIBLE_DEVICES": "0,2"}, (A, C)),
        ({"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "1"}, (B,)),
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, (C, A)),
        ({"CUDA_VISIBLE_DEVICES": "GPU-cc"}, (C,)),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,2"}, (A,)),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-bbbb,GPU-cccc", "CUDA_VISIBLE_DEVICES": "1"}, (C,)),
    ],
)
def test_the_servers_environment_decides(variables: dict[str, str], found: tuple[Identity, ...]) -> None:
    """CUDA counts within what the container was given and stops at the first name that is not valid."""
    chosen = choose(NODE, AUTO, env(**variables))
    assert (chosen.devices, chosen.rule) == (found, "environment")


@pytest.mark.parametrize("value", ["void", "all", "none", ""])
def test_words_that_name_no_gpu_decide_nothing(value: str) -> None:
    """`void` is what CDI leaves in a container that has GPUs, so it is not taken for "no GPUs"."""
    assert choose(NODE, AUTO, env(NVIDIA_VISIBLE_DEVICES=value)).rule == "all_visible"


def test_an_index_among_unlike_gpus_is_not_believed() -> None:
    """CUDA's GPU 0 of a 3090 and a 5090 is the faster one, NVML's the first on the bus: it falls to the next rule."""
    evidence = Evidence(None, {"CUDA_VISIBLE_DEVICES": "0"}, frozenset({"GPU-5090"}))
    chosen = choose(MIXED, AUTO, evidence)
    assert (chosen.devices, chosen.rule) == ((MIXED[1],), "process_memory")
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in chosen.notes[0]


def test_pci_order_makes_an_index_good_again() -> None:
    """With CUDA_DEVICE_ORDER=PCI_BUS_ID both count alike."""
    chosen = choose(MIXED, AUTO, env(CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID"))
    assert chosen.devices == (MIXED[1],)


def test_the_gpus_that_hold_the_servers_memory_come_next() -> None:
    """Without kubelet and environment, memory tells."""
    chosen = choose(NODE, AUTO, Evidence(held_uuids=frozenset({"GPU-bbbb"}), notes=("no environment",)))
    assert (chosen.devices, chosen.rule, chosen.notes) == ((B,), "process_memory", ("no environment",))


def test_all_visible_is_the_last_resort_and_keeps_every_note() -> None:
    """What each rule lacked can be read off the result."""
    chosen = choose(NODE, AUTO, Evidence(frozenset(), {"CUDA_VISIBLE_DEVICES": "-1"}, frozenset(), ("first",)))
    assert (chosen.devices, chosen.rule) == (NODE, "all_visible")
    assert chosen.notes == (
        "first",
        "the kubelet gave this pod no GPU by a device plugin",
        "CUDA_VISIBLE_DEVICES=-1 hides every GPU from the server",
        "no GPU lists memory of the server's process",
    )


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "NVIDIA_VISIBLE_DEVICES": st.text("GPU-abcd0123,:. ", max_size=20),
            "CUDA_VISIBLE_DEVICES": st.text("GPU-abcd0123,:. ", max_size=20),
        },
    ),
    st.none() | st.frozensets(st.text("GPU-abcnvidi0123:", max_size=12), max_size=3),
)
def test_whatever_is_said_the_choice_is_among_what_is_there(
    variables: dict[str, str], ids: frozenset[str] | None
) -> None:
    """No evidence makes it raise, choose nothing, or choose a GPU that cannot be seen."""
    chosen = choose(NODE, AUTO, Evidence(ids, variables))
    assert chosen.devices
    assert set(chosen.devices) <= set(NODE)
