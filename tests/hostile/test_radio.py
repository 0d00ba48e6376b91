"""Wrong arguments of the radio's parts, through the command line: one line with the value, the reason and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from judge import SMALL, Wrong, contents, refused, wrong

FILES = {
    "short.csv": "device,time,value\n" + "".join(f"{k},{time},2\n" for k in range(6) for time in (0, 0.5)),
    "negative.csv": "device,time,value\n0,0,-1\n",
    "empty.csv": "",
    "spots.csv": "device,x,y\n" + "".join(f"{k},{100 + k},0\n" for k in range(5)) + "5,0,0\n",
    "five.csv": "device,x,y\n" + "".join(f"{k},{100 + k},0\n" for k in range(5)),
    "far.csv": "device,x,y\n" + "".join(f"{k},{100 * k + 50},0\n" for k in range(6)),
    "twice.csv": "device,x,y\n" + "".join(f"{k},100,0\n" for k in range(6)) + "3,90,0\n",
    "below.py": "".join(
        f"def {name}(updates, weights, snr, rng):\n    return updates[0]\n\n{name}.{says}\n\n"
        for name, says in (("f", "min_snr = -1"), ("g", "symbols_per_parameter = 0"), ("h", "min_snr = 'low'"))
    ),
    "thing.py": "def modem(snr):\n    return snr\n",
    "thing.txt": "device,time,value\n",
}

AIR = ("radio.access=over_the_air", "codec.name=ideal")
TABLE = [
    wrong("radio.channel=rician", "radio.channel.k_factor=-1", says="k_factor=-1 cannot be: .*greater than or equal to 0"),
    wrong("radio.channel=rician", "radio.channel.k_factor=.nan", says="k_factor"),
    wrong("radio.channel=rician", "radio.channel.k=3", says="does not accept .* it takes k_factor, coverage"),
    wrong("radio.channel=nakagami", "radio.channel.m=0.4", says="m=0.4 cannot be: .*0.5"),
    wrong("radio.channel=jakes", "radio.channel.doppler=-1", says="doppler=-1 cannot be"),
    wrong("radio.channel=jakes", "radio.channel.doppler=fast", says="doppler='fast' cannot be"),
    wrong("radio.channel=jakes", "radio.channel.paths=2", says="paths=2 cannot be"),
    wrong("radio.channel=trace", says="path"),
    wrong("radio.channel=trace", "radio.channel.path=none.csv", says="there is no trace none.csv; give its path", code=3),
    wrong("radio.channel=trace", "radio.channel.path=empty.csv", says="has no column 'device'", code=3),
    wrong("radio.channel=trace", "radio.channel.path=thing.txt", says="name a .csv or .parquet file", code=3),
    wrong("radio.channel=trace", "radio.channel.path=negative.csv", says="has no row of device 1", code=3),
    wrong("radio.channel=trace", "radio.channel.path=short.csv",
          says="ends at 1 for device 0, before timeline.horizon=2; .* wrap: true", code=3),
    wrong("radio.channel=trace", "radio.channel={path: short.csv, wrap: true, max_gap: 0.4}",
          says="line 3: nothing is known of device 0 for 0.5 before time=0.5", code=3),
    wrong("radio.channel=trace", "radio.channel={path: short.csv, quantity: bits}", says="quantity='bits' cannot be"),
    wrong("radio.coverage=log_distance", "radio.coverage.min_distance=0", says="min_distance=0 cannot be: .*than 0"),
    wrong("radio.coverage=log_distance", "radio.coverage={min_distance: 500, radius: 100}",
          says="min_distance=500 and radius=100 leave no room"),
    wrong("radio.coverage=uma", "radio.coverage.min_distance=5", says="min_distance=5 cannot be: .*10"),
    wrong("radio.coverage=uma", "radio.coverage.radius=6000", says="radius=6000 cannot be: .*5000"),
    wrong("radio.coverage=umi", "radio.coverage.carrier_ghz=3.5e9", says="carrier_ghz=3500000000.0 cannot be: .*in GHz"),
    wrong("radio.coverage=umi", "radio.coverage.bandwidth_hz=0", says="bandwidth_hz=0 cannot be"),
    wrong("radio.coverage=umi", "radio.coverage.speed=-1", says="speed=-1 cannot be"),
    wrong("radio.coverage=umi", "radio.coverage.correlation=0", says="correlation=0 cannot be"),
    wrong("radio.coverage=log_distance", "radio.coverage.positions=none.csv", says="there is no trace none.csv", code=3),
    wrong("radio.coverage=log_distance", "radio.coverage.positions=spots.csv",
          says="line 7: device 5 is 0 m from the base station, min_distance=35 and radius=500; move it or change them", code=3),
    wrong("radio.coverage=log_distance", "radio.coverage.positions=five.csv",
          says="has no row of device 5; give every device", code=3),
    wrong("radio.coverage=log_distance", "radio.coverage.positions=twice.csv",
          says="line 8: device 3 has a row already; keep one of each", code=3),
    wrong("radio.coverage=log_distance", "radio.coverage.positions=far.csv",
          says="line 7: device 5 is 550 m from", code=3),
    wrong("radio.csi=noisy", "radio.csi.error=-0.1", says="error=-0.1 cannot be"),
    wrong("radio.csi=noisy", "radio.csi.margin_db=-3", says="margin_db=-3 cannot be"),
    wrong("radio.csi=pilots", "radio.csi.pilots=0", says="pilots=0 cannot be"),
    wrong("radio.csi=packet_error", "radio.csi.interference=-1", says="interference=-1 cannot be"),
    wrong("radio.csi=packet_eror", says="did you mean packet_error"),
    wrong("radio.coverage=jakes", says="it is one of radio.channel"),
    wrong("radio.access=over_the_air", says="codec.name=sparse_quantized would not be used: add codec.name=ideal"),
    wrong(*AIR, "policy.aggregator=krum", says="weighted sum .* policy.aggregator=krum as it is needs them one by one: choose"),
    wrong(*AIR, "radio.allocation=equal_symbols", says="radio.allocation=equal_symbols would share: leave it out"),
    wrong(*AIR, "radio.modem=thing.py:modem", says="radio.modem=thing.py:modem would not be used: leave it out"),
    wrong(*AIR, "radio.modem=nr", says="radio.modem=nr would not be used: leave it out"),
    wrong("radio.modem=shanon", says="did you mean shannon"),
    wrong("radio.modem=nr", "radio.modem.table=3", says="table=3 cannot be: .*1 or 2"),
    wrong("radio.modem=nr", "radio.modem.max_mcs=40", says="max_mcs=40 cannot be: .*less than or equal to 28"),
    wrong("radio.modem={name: nr, table: 2, max_mcs: 28}", says="max_mcs=28: table 2 has MCS 0 to 27; choose"),
    wrong("radio.modem={name: nr, min_mcs: 9, max_mcs: 3}", says="min_mcs=9 and max_mcs=3.*choose 0 <= min_mcs <= max_mcs"),
    wrong("radio.modem=nr", "radio.modem.bler_target=0", says="bler_target=0 cannot be: .*greater than 0"),
    wrong("radio.modem=nr", "radio.modem.harq=arq", says="harq='arq' cannot be: .*'none', 'chase' or 'ir'"),
    wrong("radio.modem=nr", "radio.modem.rounds=0", says="rounds=0 cannot be"),
    wrong("radio.modem=nr", "radio.modem.overhead=1", says="overhead=1 cannot be: .*less than 1"),
    wrong("radio.modem=nr", "radio.modem.overhead=0.999", says="overhead=0.999 leaves no symbol for data; choose at most 0.99"),
    wrong("radio.modem=nr", "radio.modem.mcs=3", says="does not accept .* it takes table"),
    wrong("radio.modem=gap", "radio.modem.gap_db=-1", says="gap_db=-1 cannot be: .*in dB"),
    wrong("radio.modem=gap", "radio.modem.cap=0", says="cap=0 cannot be: .*in bit/symbol"),
    wrong(*AIR, "radio.access.min_snr=-1", says="min_snr=-1 cannot be: .*greater than or equal to 0"),
    wrong(*AIR, "radio.access.min_snr=.inf", says="min_snr"),
    wrong(*AIR, "radio.access.threshold=1", says="does not accept .* it takes min_snr"),
    wrong(*AIR, "radio.num_symbols=3000",
          says="takes 3,925 symbols for 7,850 parameters, .* has 3,000: raise radio.num_symbols"),
    wrong("radio.access=over_air", says="did you mean over_the_air"),
    wrong("codec.name=ideal", "radio.access=below.py:f", says=r"below.py:\d+. has min_snr=-1: it must be a number >= 0"),
    wrong("codec.name=ideal", "radio.access=below.py:g", says="has symbols_per_parameter=0: it must be a number > 0"),
    wrong("codec.name=ideal", "radio.access=below.py:h", says="has min_snr='low': it must be a number >= 0"),
]  # fmt: skip


@pytest.mark.parametrize("case", TABLE, ids=str)
def test_refused(case: Wrong, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    before = contents(tmp_path)
    refused(case._replace(words=("plan", *SMALL, *case.words)))
    assert contents(tmp_path) == before
