"""Session journals: what a coding agent writes beside its transcript, on any number of devices (journal.md).

A payload of the registry kind `foldpoint.journal` carries one entry of one session. The records of a session, in
(hlc, op_id) order, fold to its JournalState.

  shapes, ops, lines    what an entry is, and how a `.journal.jsonl` is read and written (§1, §2)
  records               a payload of the registry, and the entry in it (server.md §8)
  view, views           the part of the fold that an entry's author had seen (§8.3)
  state, fold           JournalState and the fold (§3, §8.4); snapshot is its stored form
  recovery, messages    reopening a session (§5.3) and the transcript wire (§4)
  files                 whole files in and out (§8.1–8.2)
  calls, claims         what hosted writers say, and what they are handed
  handles               sessions by name
"""
