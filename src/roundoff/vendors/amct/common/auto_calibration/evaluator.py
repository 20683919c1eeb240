"""What users write to have a model calibrated and judged."""

from typing import Any

__all__ = ["AutoCalibrationEvaluatorBase"]


class AutoCalibrationEvaluatorBase:
    """Runs models for calibration, measures them, and says whether a measure is good enough.

    Models are given by their files: one for ONNX; definition and weights for Caffe.
    """

    def calibration(self, *model_files: Any, **named: Any) -> None:
        """Run the modified model on at least ``batch_num`` batches."""
        raise NotImplementedError("an evaluator needs a method calibration()")

    def evaluate(self, *model_files: Any, **named: Any) -> Any:
        """Measure a model; the result is only handed to `metric_eval`."""
        raise NotImplementedError("an evaluator needs a method evaluate()")

    def metric_eval(self, original_metric: Any, new_metric: Any) -> tuple[bool, float]:
        """Whether a measure is good enough, and what was lost.

        Args:
            original_metric: Of the float model.
            new_metric: Of a quantized one.
        """
        raise NotImplementedError("an evaluator needs a method metric_eval()")
