"""What notices that the engine failed during a push of weights, with real sockets; the engine is a thread."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Thread
from types import ModuleType

import pytest
import zmq

from ragen_verl.patches import weights
from ragen_verl.patches.weights import (
    WatchedSocket,
    load_in_pieces,
    name_the_mapper,
    of_this_cluster,
    own_sockets,
    watch_the_engine,
)


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(weights, "POLL", 0.01)
    with zmq.Context() as context, context.socket(zmq.REQ) as trainer, context.socket(zmq.REP) as engine:
        trainer.linger = 0
        trainer.bind("inproc://push")
        engine.connect("inproc://push")
        yield trainer, engine


def answer_once(engine: zmq.Socket, answer: Future) -> None:
    engine.recv()
    answer.set_result(None)
    engine.send(b"loaded")


def test_an_engine_that_raised_ends_the_push(pair) -> None:
    trainer, _ = pair
    answer: Future = Future()
    answer.set_exception(ValueError("no such weight"))
    socket = WatchedSocket(trainer, answer)
    socket.send(b"bucket")
    with pytest.raises(ValueError, match="no such weight"):
        socket.recv()


def test_an_engine_that_is_silent_ends_the_push(pair, monkeypatch) -> None:
    monkeypatch.setattr(weights, "PATIENCE", 0.02)
    trainer, _ = pair
    for answer in (None, Future()):
        socket = WatchedSocket(trainer, answer)
        if answer is None:
            socket.send(b"bucket")
        with pytest.raises(TimeoutError, match="bucket"):
            socket.recv()


def test_the_last_message_of_an_engine_that_ended_counts(pair) -> None:
    trainer, engine = pair
    answer: Future = Future()
    socket = WatchedSocket(trainer, answer)
    thread = Thread(target=answer_once, args=(engine, answer))
    thread.start()
    socket.send(b"bucket")
    assert socket.recv() == b"loaded"
    thread.join()


def test_what_the_engine_raised_is_not_hidden_by_its_cleanup() -> None:
    class Receiver:
        def __init__(self):
            self.shm, self.closed = object(), False

        def _cleanup(self):
            if self.shm is not None:
                raise BufferError("cannot close exported pointers exist")
            self.closed = True

    module = ModuleType("bucketed_weight_transfer")
    module.BucketedWeightReceiver = Receiver
    module.BucketedWeightSender = type("Sender", (), {"_init_socket": lambda self: None})
    watch_the_engine(module)
    receiver = Receiver()
    receiver._cleanup()
    assert receiver.closed


def test_both_sides_of_a_push_name_their_cluster_in_the_socket(monkeypatch) -> None:
    class Side:
        def __init__(self, zmq_handle, bucket_size_mb=512, use_shm=False):
            self.zmq_handle, self.bucket_size_mb, self.use_shm = zmq_handle, bucket_size_mb, use_shm

    module = ModuleType("bucketed_weight_transfer")
    module.BucketedWeightSender = type("Sender", (Side,), {"__init__": Side.__init__})
    module.BucketedWeightReceiver = type("Receiver", (Side,), {"__init__": Side.__init__})
    own_sockets(module)

    def names(cluster: str) -> set[str]:
        monkeypatch.setenv("RAY_RAYLET_PID", cluster)
        sender = module.BucketedWeightSender("ipc:///tmp/push-01000000.sock", 16, use_shm=True)
        assert (sender.bucket_size_mb, sender.use_shm) == (16, True)
        return {sender.zmq_handle, module.BucketedWeightReceiver(zmq_handle="ipc:///tmp/push-01000000.sock").zmq_handle}

    first, second = names("11"), names("12")
    assert len(first) == len(second) == 1 and first != second
    monkeypatch.delenv("RAY_RAYLET_PID")
    assert of_this_cluster("ipc:///tmp/push.sock") == "ipc:///tmp/push.sock"


class Loader:
    def _check_skipped_aliases(self, loaded):
        raise ValueError("tied")


class OldMapper:
    def get_unstacked_mapper(self):
        return "its own"


class NewMapper:
    def get_rename_mapper(self):
        return "renames"


@pytest.mark.parametrize(("mapper", "expected"), [(OldMapper, "its own"), (NewMapper, "renames")])
def test_both_generations_of_vllm_are_complete(mapper, expected) -> None:
    module = ModuleType("vllm.model_executor.models.utils")
    module.AutoWeightsLoader, module.WeightsMapper = Loader, mapper
    load_in_pieces(module)
    name_the_mapper(module)
    assert module.WeightsMapper().get_unstacked_mapper() == expected
    assert module.AutoWeightsLoader()._check_skipped_aliases(set()) is None
