"""What the kubelet lists of a node, in protobuf."""


def field(number: int, value: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    head = bytes([value & 0x7F | (0x80 if value > 0x7F else 0)])
    return head + (varint(value >> 7) if value > 0x7F else b"")


def devices(resource: str, *ids: str) -> bytes:
    topology = field(3, field(1, b"\x08\x01"))
    return field(2, field(1, resource.encode()) + b"".join(field(2, name.encode()) for name in ids) + topology)


def pod(namespace: str, name: str, *containers: bytes) -> bytes:
    listed = b"".join(field(3, field(1, b"c") + container + varint(3 << 3) + varint(7)) for container in containers)
    return field(1, field(1, name.encode()) + field(2, namespace.encode()) + listed)


NODE = (
    pod("other", "llm-0", devices("nvidia.com/gpu", "GPU-other"))
    + pod("ai", "llm-0", devices("nvidia.com/gpu", "GPU-1", "GPU-2") + devices("rdma/hca", "mlx5"), b"")
    + pod("ai", "sliced", devices("nvidia.com/mig-1g.10gb", "MIG-1"), devices("nvidia.com/gpu.shared", "GPU-3::2"))
    + pod("ai", "cpu-only", b"")
)
