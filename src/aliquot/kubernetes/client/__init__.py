"""The API server, seen through narrow structs: the only package that imports the client library."""
