"""What the page of the worlds says in sentences. Every number is filled in from the runs, so that it follows when they change.

A place such as {macro[random][kept]} is a cell of the page's table of worlds: world, schedule, column.
{macro[change][random, BC]} is what the gain of random over BC changes by from the paper's cell to that world.
"""

from __future__ import annotations

EXPLAINED = {
    "macro": """
**A macro cell.** Symbols are shared so that all who upload in a period send the same number of bits, so one poor link
costs all of them. In the paper's cell a poor link lasts one period; with path loss and shadowing it belongs to a
device. Under random scheduling an update keeps {macro[random][kept]} of its elements here and {paper[random][kept]} in
the paper's cell. Here it keeps {macro[proposed][kept]} under the proposed schedule and {macro[BC][kept]} under BC. But
then some devices never upload: {macro[BC][never]} under BC, {macro[proposed][never]} under the proposed schedule,
{macro[random][never]} under random scheduling. From the paper's cell to this one the gain of the proposed schedule over
random changes by {macro[change][proposed, random]}, and that of random over BC by {macro[change][random, BC]}.
""",
    "walking": """
**Slow fading, estimated.** Two things change at once: fading lasts over periods, and the server has estimates of the
links. An update whose packet has more bits than its link carries is lost: {walking[random][lost]} of them under random
scheduling, {walking[proposed][lost]} under the proposed schedule, {walking[BC][lost]} under BC. These runs do not
separate the two changes.
""",
    "phones": """
**Phones that come and go.** A device that leaves with a model comes back with an old update. Under random scheduling
ages are {phones[random][age]} periods (mean, largest) here and {paper[random][age]} in the paper's cell. An update
weighs in proportion to gamma^age, so gamma matters more where updates are older. From the paper's cell to this world
the gain of fresh updates changes by {phones[change][random, fresh, random]} under random scheduling and
{phones[change][proposed, fresh, proposed]} under the proposed schedule, that of old updates by
{phones[change][random, old, random]} and {phones[change][proposed, old, proposed]}. Two things change at once: when
devices are there, and how long a job takes. These runs do not separate them.
""",
    "cifar": """
**CIFAR-10** changes the images, the model, how labels are dealt, the learning rate, the batches and the symbols at
once, with fewer samples and fewer seeds. What differs there cannot be put down to one of them.
""",
}

CHANGED = """
## What changed

The runs with slow fading were made anew. An update is now lost if its packet has more bits than the link carries. Before, the
bits that were granted decided, whether or not the packet used them, and the page explained what followed from that. FedAvg
with phones was made anew, too: its rounds wait for all who take part, so that no update is stale. Differences between worlds
are now tested, and sentences that no run carried are gone.
"""

NOT_ASKED = """
**What was not asked.** BCBN2, FedAsync, i.i.d. data and other R; horizons beyond 10 T_max. `fedtide worlds` takes more seeds,
and a world is a few lines in `paper/worlds.py`.
"""
