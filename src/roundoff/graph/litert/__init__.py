"""LiteRT models (.tflite): a door into the graph."""
