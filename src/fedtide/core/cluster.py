"""Other processes: those of a Dask cluster, at an address or started on this machine, and how worker processes start."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from fedtide.core import signals
from fedtide.errors import FedtideError

CONNECT_SECONDS = 10
_TLS_KEYS = {
    "tls_ca_file": "DASK_DISTRIBUTED__COMM__TLS__CA_FILE",
    "tls_client_cert": "DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT (and __KEY)",
}


class Cluster(NamedTuple):
    """A connection to a cluster."""

    client: Any  # distributed.Client
    close: Callable[[], None]  # the connection; with it the workers, if they were started for it


def connect_cluster(asked: str, key: str, address: str | None, workers: int, **local: Any) -> Cluster:
    """Connect to the scheduler at `address`, or start `workers` processes of one thread; raise if there is none.

    asked: who needs Dask, key: what gives the address, for the error's line. local: what else a cluster here is made with.
    """
    require_dask(asked)
    from distributed import Client, LocalCluster, Security

    tls = None
    if address is not None and address.startswith("tls://"):
        tls = Security()  # of Dask's own configuration
        if missing := [name for name in ("tls_ca_file", "tls_client_cert") if getattr(tls, name) is None]:
            given = " and ".join(_TLS_KEYS[name] for name in missing)
            raise FedtideError(
                f"{key}={address} speaks TLS, and Dask's configuration has no certificates for it: set {given} "
                "(docs/howto/cluster.md)"
            )
    with contextlib.ExitStack() as open_now:
        try:
            cluster = None
            if address is None:
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    dashboard_address=":0",  # any free port: two runs may start at once
                    scheduler_kwargs={"dashboard": False},
                    processes=True,
                    preload=[__name__],
                    **local,
                )
                open_now.callback(cluster.close)
            client = Client(cluster or address, timeout=CONNECT_SECONDS, security=tls)
        except (OSError, ValueError, TimeoutError) as error:
            raise FedtideError(f"no Dask scheduler answers at {address!r} ({error}); check {key}") from error
        except (AssertionError, RuntimeError) as error:
            raise FedtideError(
                f"{asked}: worker processes cannot be started here ({error}); give {key}=tcp://..., and in a script "
                'begin under `if __name__ == "__main__":`'
            ) from error
        open_now.callback(client.close)  # before the cluster
        return Cluster(client, open_now.pop_all().close)


def dask_setup(worker: Any) -> None:
    """Begin in a worker process that was started here; Dask calls this by its name."""
    signals.leave_signals_to_parent()


def require_dask(asked: str) -> None:
    """Raise if Dask is not installed. asked: who needs it."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise FedtideError(f"{asked} needs Dask ({error}): pip install 'fedtide[dask]'") from error


@contextlib.contextmanager
def starting_cluster_workers() -> Iterator[None]:
    """Start workers that hear no Ctrl-C, which is for this process, and import no script of the user's.

    The script may be standard input, or start the study again.
    """
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        with cluster_ignores_signal(signal.SIGINT):
            yield
    finally:
        sys.modules["__main__"] = script


@contextlib.contextmanager
def cluster_ignores_signal(number: int) -> Iterator[None]:
    """Let processes that are started within not hear a signal; this one hears it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
