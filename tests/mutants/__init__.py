"""Faults in numbers that users read, planted one by one: the tests named with each must notice it."""
