"""Shakespeare's 37 plays as Project Gutenberg has them, one text each: names, sizes, checksums, and are these the bytes?"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from fedtide.errors import DataError


class Text(NamedTuple):
    """One play."""

    name: str  # of its file
    num_bytes: int
    sha256: str


PLAYS: Final = (
    Text(
        "alls_well_that_ends_well_gut.txt", 133682, "59fdc8e61c63b960bf9030c0a126204d4c0c8c07e2ae62c9a7343ba51a39f6d4"
    ),
    Text("antony_and_cleopatra_gut.txt", 151470, "4ee34c39371d05df790b880f2835521919dff45f7eec183855ff7dae1bac95e9"),
    Text("as_you_like_it_gut.txt", 125228, "5954146ea5d9231477fed18ee11e0f22267e4d4d4213a39d56e343047e6d8bdf"),
    Text("comedy_of_errors_gut.txt", 88209, "1e5f9faa9879d172aaaaf8828def61ad2a0c0ad1ecee149f634d65c3f67809e4"),
    Text("coriolanus_gut.txt", 164969, "c4f748c8d386f98db9d39e6cbac69913c940653a222eb847b608be64e4d66aeb"),
    Text("cymbeline_gut.txt", 98303, "7a8a994373868eb84d60c7e4c30a7865ed7fe90c74534cc37c173a3b80f98b21"),
    Text("hamlet_gut.txt", 173942, "bbe5635616c6e0e0bcf01b7b8c324be8b42451c51848f11c283bd2f4442b1e0a"),
    Text("henry_iv_part_1_gut.txt", 138391, "f40b5de9ca126d9ff1c388d0648a2f19c3e7ad3ac80a9662579954bb2e7589f9"),
    Text("henry_iv_part_2_gut.txt", 153117, "2898cb3be5e2691cc0310cc94fe70153e3245c88ec307b1b6d43315ec1ab28b2"),
    Text("henry_v_gut.txt", 152768, "336564231a0d5aa8dfb4b27964670fbbe27886a2d429f96facfa35c41dda09b9"),
    Text("henry_vi_part_1_gut.txt", 129800, "3598ca5644950f443225b86f4774772d12f12e6b95e33cac4f54d131004c2e19"),
    Text("henry_vi_part_2_gut.txt", 148292, "c0d4023b61f2aa672fec92fd107a4a2ca3d79008749e3357efecc6a05ddf6603"),
    Text("henry_vi_part_3_gut.txt", 144686, "82738995a59a5f18570f16b45503c3ade9ed7098ad3daa01bc963abf409491ff"),
    Text("henry_viii_gut.txt", 143482, "33cea8e4fd0a150ced19d1f08fee6df86bd692c1a41b4cdcfc387c47f1470ada"),
    Text("john_gut.txt", 121087, "635af28743587546b71008084f15714c9f4fa0a894766427c9b21c052306bf56"),
    Text("julius_caesar_gut.txt", 116216, "ee8ca8e9edb603625af98acb395fdd8c1a1697b064444a989dc21817b73ca7b5"),
    Text("lear_gut.txt", 151922, "7ac00e23da6e4874b715b3c3c0c1cdc442bc790eb6ac3f39c0610052e5e636fa"),
    Text("loves_labours_lost_gut.txt", 128644, "8858afe4d5b0d80936edc0346957f89aca9929de76c2763e76c10a9adb53b2a2"),
    Text("macbeth_gut.txt", 103427, "54e1d8055ffa2aec7e831ec43044dd646cacdfce5bf333fa81e6af9c0363c3b7"),
    Text("measure_for_measure_gut.txt", 126095, "373e7bad7682ef155ac631da7a4422b0b73c5e9ca84321ab37dac7cce9ba64d9"),
    Text("merchant_of_venice_gut.txt", 120445, "97642a677f13b095c481d712734876908db828624e01024a42f8b5ad93c6c599"),
    Text("merry_wives_of_windsor_gut.txt", 128164, "b435e5342e22a3681544b5e3bd65fce730edbb28495681a33a7567ddf9f6e5da"),
    Text("midsummer_nights_dream_gut.txt", 96249, "fe198104bcbcfa38bbf24c21073844dcbc5be6b8b7cd1bb76a68099f12667152"),
    Text("much_ado_about_nothing_gut.txt", 122354, "d47957039342adc96b4b4a3d3871a980de1193127c768b978d368f3d17625c50"),
    Text("othello_gut.txt", 154519, "12c32a0e148c3a2f4d9bb5710198f18cd04a5f8197f8cbeb25ca482174382d3d"),
    Text("pericles_gut.txt", 108950, "113765d4bd41dfbd7faba192b4a5a20d53fed0da8544b59e4e6a30c6c45eac30"),
    Text("richard_ii_gut.txt", 130293, "8ac6a1bac1b42517b70384a1645af44f2db9052d6b9eb508f1135bf8a29513df"),
    Text("richard_iii_gut.txt", 175659, "98140214b31451a5b9e4af8bdae9ec1c24cb0966aeabbcaed21d11c8364fe9d9"),
    Text("romeo_and_juliet_gut.txt", 141753, "6a5e0c9ee103a9bd95d8b045f5c53f66779b45b198788db458075f828a0425f4"),
    Text("taming_of_the_shrew_gut.txt", 123283, "63952a385bfe626dfc4d1af732582b4c734e4134eaa8470cc85b57984e7e7d36"),
    Text("tempest_gut.txt", 98439, "76b1bfcff40ead1585c280a7f14147c2761c7b9e6d6fb8598e7aae6e99509e26"),
    Text("timon_of_athens_gut.txt", 111091, "e06be61630cfc3b60aa817034c7eabe0f941c28bf46ad18ad8e0332ff6232d07"),
    Text(
        "tragedy_of_titus_andronicus_gut.txt",
        120441,
        "6ebff81eb9567ddcd9184e7bf7f35f4e5bdb75a8b7a02db4fe24bf118f562e84",
    ),
    Text("troilus_and_cressida_gut.txt", 156291, "d8900eea5aa6df25f79151994fba50753ad88cec14d825bb0fb1ee88ac7c6772"),
    Text("twelfth_night_gut.txt", 114876, "bb5b25bd3fe7a34776cab3f6205b410fa442059657aba082334edc80eea958ef"),
    Text("two_gentlemen_of_verona_gut.txt", 100983, "26d11defe685c4c34333ee7772c34a0594a8497307f9e8cfb01dac0811505428"),
    Text("winters_tale_gut.txt", 152788, "06b39203a7b376902a73d8539eb9f0de4f4246cee0a9bfc6a30a9256d9250393"),
)


def check(raw: bytes, text: Text) -> bytes:
    """Return raw; DataError (the reason only) if it is not this play, byte for byte."""
    if len(raw) != text.num_bytes:
        what = "truncated: " if len(raw) < text.num_bytes else ""
        raise DataError(f"{what}{len(raw)} bytes, expected {text.num_bytes}")
    digest = hashlib.sha256(raw).hexdigest()
    if digest != text.sha256:
        raise DataError(f"corrupt: SHA-256 {digest}, expected {text.sha256}")
    return raw
