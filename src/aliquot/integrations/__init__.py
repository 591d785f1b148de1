"""One package per runtime. Siblings never import each other."""
