"""Networks with faults planted in them and the truth beside them: what `roundoff diagnose` is measured with."""
