"""The content of pictures of GPUs and plans: instances with letters, and actions in words. User interfaces draw it."""
