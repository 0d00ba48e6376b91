"""The league: the methods that papers cite, in the same worlds, at equal airtime, tuned alike, with paired intervals."""
