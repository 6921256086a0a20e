"""What is done with compiled code on disk; no code is made from it, so an edit here compiles nothing anew."""
