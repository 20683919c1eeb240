"""The functions of Ascend's model compression toolkit (AMCT), by their own names.

``import roundoff.vendors.amct.onnx as amct`` takes the place of ``import amct_onnx as amct``, and
``from roundoff.vendors.amct.common.auto_calibration import ...`` that of ``from amct_onnx.common.auto_calibration
import ...``. `roundoff.vendors.amct.caffe` has the functions of ``amct_caffe``.
"""
