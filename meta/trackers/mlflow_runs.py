"""MLflow: a run on the server, or in the database, of `MLFLOW_TRACKING_URI`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

import configs
from meta.trackers.export import without_passwords
from meta.trackers.tracker import MetricsRow, TrackedRun, make_row

EXPERIMENT = "marl-shaping"
ID, ROWS = "marl_shaping.id", "marl_shaping.rows"  # tags
MOST_METRICS, LONGEST = 1000, 500  # of a request; characters of a value


class MlflowRuns:
    """Tracks in MLflow, in the experiment of `MLFLOW_EXPERIMENT_NAME` or `marl-shaping`.

    The number of rows follows them as a tag, and a resumed run reads from the server what it has.
    """

    name, place = "mlflow", ""

    def begin(self, run: TrackedRun) -> dict[str, int]:
        """Creates the run with its config as parameters, or finds it by its id; returns the rows that it has."""
        client = self._client = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else client.create_experiment(name)
        found = client.search_runs([number], f"tags.`{ID}` = '{run.id}'", max_results=1)
        self.place = f"MLflow, {without_passwords(client.tracking_uri)}, experiment {name}"
        self._metrics = list[Metric]()
        if found:
            self._id = found[0].info.run_id
            client.update_run(self._id, status="RUNNING")
            self._rows: dict[str, int] = json.loads(found[0].data.tags.get(ROWS, "{}"))
            return dict(self._rows)
        tags = {ID: run.id, "marl_shaping.command": run.command}
        self._id, self._rows = client.create_run(number, tags=tags, run_name=run.name).info.run_id, {}
        parameters = [Param(key, str(x)[:LONGEST]) for key, x in configs.full_names(run.config).items()]
        client.log_batch(self._id, params=parameters)
        return {}

    def log(self, row: MetricsRow) -> None:
        """Keeps the metrics for a request, which is sent when it is full or by `flush`."""
        if len(self._metrics) + len(row.metrics) > MOST_METRICS:
            self.flush()
        now = int(1000 * time.time())
        self._metrics += [Metric(name, value, now, row.step) for name, value in row.named.items()]
        self._rows[row.part] = row.step

    def flush(self) -> None:
        """Sends the rows that are kept."""
        if self._metrics:
            self._client.log_batch(self._id, metrics=self._metrics)
            self._client.set_tag(self._id, ROWS, json.dumps(self._rows))
            self._metrics = []

    def finish(self, summary: Mapping[str, Any] | None, files: Sequence[Path]) -> None:
        """Logs numbers of the summary as metrics, and the files as artifacts, and ends the run."""
        self.flush()
        now, step = int(1000 * time.time()), self._rows.get("", 0)
        numbers = make_row(step, summary or {}).metrics
        last = [Metric(f"summary/{name}", x, now, step) for name, x in numbers.items()]
        self._client.log_batch(self._id, metrics=last)
        for file in files:
            folder = "figures" if file.suffix in (".png", ".gif") else None
            self._client.log_artifact(self._id, str(file), folder)
        self._client.set_terminated(self._id, "KILLED" if summary is None else "FINISHED")
