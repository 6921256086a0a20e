"""What the command line can do, one folder a verb: compute a frozen result, and show it apart."""
