"""Trackers: metrics, results and figures of a run in W&B, Trackio, TensorBoard, MLflow, or a tracker of the user."""
