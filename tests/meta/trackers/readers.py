"""Readers of what trackers have stored, each by another way than it was written."""

import json
import sqlite3
import struct
from collections import defaultdict

BLOCK, HEADER, FILE_HEADER = 2**15, 7, 7  # bytes of W&B's log of records
WHOLE, LAST = 1, 4  # kinds of a piece of a record


def event_files(folder):
    """{name: [(step, value)]} of the scalars that TensorBoard shows, and the tags of texts and images."""
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    found = EventMultiplexer(size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    found.AddRunsFromDirectory(str(folder / "tensorboard"))
    found.Reload()
    series, others = {}, set()
    for run, tags in found.Runs().items():
        for tag in tags["scalars"]:
            name = tag if run == "." else f"{run}/{tag}"
            series[name] = [(event.step, event.value) for event in found.Scalars(run, tag)]
        others |= {*tags["images"], *tags["tensors"]}
    return series, others


def offline_wandb(folder):
    """{name: [(row of its part, value)]} of all offline runs in a folder, whose id is one, with names of files."""
    from wandb.proto.wandb_internal_pb2 import Record

    series, others, ids = defaultdict(list), set(), set()
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        ids.add(file.stem)
        steps = []
        for data in _records(file.read_bytes()):
            record = Record.FromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "history":
                row = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
                row = {name: json.loads(x) for name, x in row.items() if not name.startswith("_")}
                steps.append(record.history.step.num)
                counter = {name.rpartition("/")[0]: x for name, x in row.items() if name.endswith("generation")}
                for name, x in row.items():
                    part = next(part for part in sorted(counter, reverse=True) if name.startswith(part))
                    series[name].append((counter[part], x))
            elif kind == "files":
                others |= {one.path for one in record.files.files}
            elif kind == "summary":
                others |= {item.key for item in record.summary.update}
            elif kind == "run":
                others |= {f"config {item.key}" for item in record.run.config.update}
        assert steps == sorted(set(steps))
    assert len(ids) == 1
    return dict(series), others


def _records(data):
    at, record = FILE_HEADER, b""
    while at + HEADER <= len(data):
        if (left := BLOCK - at % BLOCK) < HEADER:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEADER])
        record, at = record + data[at + HEADER : at + HEADER + length], at + HEADER + length
        if kind in (WHOLE, LAST):
            yield record
            record = b""


def trackio_database(folder):
    """{name: [(step, value)]} of the one run in the database, with names of media, artifacts and config."""
    series, others = defaultdict(list), set()
    with sqlite3.connect(folder / "trackio" / "marl-shaping.db") as database:
        runs = database.execute("select distinct run_id from metrics").fetchall()
        assert len(runs) == 1
        for step, metrics in database.execute("select step, metrics from metrics order by id"):
            for name, x in json.loads(metrics).items():
                if isinstance(x, dict):
                    others.add(name)
                else:
                    series[name].append((step, x))
        others |= {name for (name,) in database.execute("select name from artifacts")}
        (config,) = database.execute("select config from configs").fetchone()
        others |= {f"config {name}" for name in json.loads(config)}
    return dict(series), others


def mlflow_server(address):
    """{name: [(step, value)]} of the newest run on a server, with names of parameters, artifacts and the summary."""
    from mlflow import MlflowClient

    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("marl-shaping")
    runs = client.search_runs([experiment.experiment_id])
    assert len({run.data.tags["marl_shaping.id"] for run in runs}) == len(runs)
    run = runs[0]
    series, others = {}, {f"config {name}" for name in run.data.params}
    for name in run.data.metrics:
        history = [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
        if name.startswith("summary/"):
            others.add(name)
        else:
            series[name] = history
    for artifact in client.list_artifacts(run.info.run_id):
        inside = client.list_artifacts(run.info.run_id, artifact.path) if artifact.is_dir else [artifact]
        others |= {one.path for one in inside}
    return series, others
