"""Small traces in every format that is read, made when they are asked for."""

from __future__ import annotations

import atexit
import functools
import pickle
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

CAPACITY = {client: {"computation": 10.0 + 3 * client, "communication": 5000.5} for client in range(1, 40)}
BEHAVIOUR = {
    client: {
        "duration": 60 * client,
        "active": [10, 100 + client],
        "inactive": [10 + client, 100 + 2 * client],
        "finish_time": 200 + client,
        "model": "CPH1801",
    }
    for client in range(1, 40)
}


@functools.cache
def _folder() -> Path:
    made = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@functools.cache
def _file(name: str, content: bytes) -> Path:
    path = _folder() / name
    path.write_bytes(content)
    return path


def drive_test(rows: Iterable[tuple[float, str]], begun: str = "2019.12.16_13.40.00") -> str:
    """Return a drive test as a phone writes it down, of so many seconds and SNRs; speed, cell and CQI go along."""
    header = (
        "Timestamp,Longitude,Latitude,Speed,Operatorname,CellID,NetworkMode,RSRP,RSRQ,SNR,CQI,RSSI,DL_bitrate,UL_bitrate,State,"
        "PINGAVG,PINGMIN,PINGMAX,PINGSTDEV,PINGLOSS,CELLHEX,NODEHEX,LACHEX,RAWCELLID,NRxRSRP,NRxRSRQ"
    )
    start, lines = datetime.strptime(begun, "%Y.%m.%d_%H.%M.%S"), [header]
    for second, snr in rows:
        time = (start + timedelta(seconds=second)).strftime("%Y.%m.%d_%H.%M.%S")
        mode, cqi = ("HSPA+", "-") if snr == "-" else ("5G", "8")
        lines.append(
            f"{time},-8.49,51.89,12,B,3,{mode},-79,-12,{snr},{cqi},-61,1,3,D,-,-,-,-,-,3,76C6C,9CBA,124546051,-,-"
        )
    return "\n".join(lines) + "\n"


def needed(kind: str, name: str) -> Mapping[str, Any]:
    """Return the arguments that a registered part cannot do without."""
    if (kind, name) == ("duration", "trace"):
        rows = "".join(f"{device},{job},{device + job / 7}\n" for device in range(12) for job in range(1, device + 2))
        return {"path": _file("durations.csv", f"device,job,duration\n{rows}".encode()), "wrap": True}
    if (kind, name) == ("availability", "trace"):
        rows = "".join(
            f"{device},{8 * turn + device / 3},{8 * turn + 4.1}\n" for device in range(12) for turn in range(5)
        )
        return {"path": _file("stays.csv", f"device,start,end\n{rows}".encode()), "wrap": True}
    if (kind, name) == ("duration", "fedscale_capacity"):
        return {"path": _file("client_device_capacity", pickle.dumps(CAPACITY))}
    if (kind, name) == ("availability", "fedscale"):
        return {"path": _file("client_behave_trace", pickle.dumps(BEHAVIOUR))}
    if (kind, name) == ("channel", "drive_test"):
        return {
            "path": _file("drive.csv", drive_test([(second, f"{second % 23 - 5}.0") for second in range(200)]).encode())
        }
    if (kind, name) == ("energy", "carbon"):
        rows = "".join(f"{hour},{300 + 10 * hour}\n" for hour in range(24))
        return {"path": _file("grid.csv", f"hour,g_per_kwh\n{rows}".encode()), "inner": "cmos"}
    if (kind, name) == ("channel", "mahimahi"):
        return {"path": _file("packets.trace", "".join(f"{7 * at % 11 + 11 * at}\n" for at in range(4000)).encode())}
    return {}
