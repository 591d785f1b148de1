"""Building blocks of every verb: parser, node, output, errors, progress."""
