"""What the numbers mean: comparisons today; layer errors, sensitivity and distributions stand beside them."""
