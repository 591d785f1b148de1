"""The pure core: values, planner, text formats, engine and pictures. It computes and does no I/O."""
