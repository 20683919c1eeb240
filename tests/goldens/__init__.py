"""What every command gives today, number by number; ``python -m tests.goldens --diff`` shows what moved."""
