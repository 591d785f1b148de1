"""``aliquot dra``: GPUs in Dynamic Resource Allocation."""
