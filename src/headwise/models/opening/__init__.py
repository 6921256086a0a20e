"""Opening a model from whatever the user named, without running code that comes with it.

Nothing is imported here: the child process that reads GGUF files starts in this package, and must be able to
refuse a file before it loads torch.
"""
