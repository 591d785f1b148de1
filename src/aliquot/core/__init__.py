"""Values, planner, text formats, engine and pictures: what computes and does no I/O."""
