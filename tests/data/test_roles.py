from __future__ import annotations

from fedtide.data.shakespeare import ALPHABET, _roles

PLAY = """THE PLAY

by William Shakespeare

PERSONS REPRESENTED.

KING OF FRANCE.
HELENA, a gentlewoman.

ACT I.

SCENE 1. Rousillon. A room.

[Enter HELENA and the
KING.]

HELENA.
O, were that   all!
  [Aside.] I think not on my father;

And these great tears.
FAREWELL.

KING. {To himself.]
Farewell.

Farewell.

HELENA
What?

SCENE II. The same.

A road.

FIRST LORD.
Sir.
"""

SHORT = """Act I. Scene I.

Ham.
Who's there?

Mar. and Ber.
Nay.

Ham.
Long live the King!

[Exit.]

Farewell.

Ham.
He.
"""


def test_who_says_what():
    assert _roles(PLAY) == {
        "HELENA": "O, were that all! I think not on my father; And these great tears. FAREWELL. What?",
        "KING": "Farewell. Farewell.",
        "FIRST LORD": "Sir.",
    }
    assert list(_roles(PLAY)) == ["HELENA", "KING", "FIRST LORD"]


def test_a_short_line_is_a_name_only_if_it_comes_often():
    assert _roles(SHORT) == {"HAM": "Who's there? Mar. and Ber. Nay. Long live the King! Farewell. He."}


def test_what_is_no_play_has_no_roles():
    for text in (
        "",
        "\n\n",
        "I\n\nFrom fairest creatures we desire increase,\n",
        "ACT I.\n\nNobody speaks, but for this.\n",
    ):
        assert _roles(text) == {}


def test_the_alphabet_is_leafs():
    assert len(ALPHABET) == len(set(ALPHABET)) == 80
    assert ALPHABET.isascii()
