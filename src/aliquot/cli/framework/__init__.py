"""What every verb uses: parser, node, output, errors, progress."""
