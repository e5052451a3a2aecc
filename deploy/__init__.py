"""How vllm-headroom gets onto Kubernetes: the chart, the kustomization, the examples, and what builds them."""
