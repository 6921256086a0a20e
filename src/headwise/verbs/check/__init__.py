"""`check`: is this attention right, and if not, which known fault reproduces its numbers?"""
