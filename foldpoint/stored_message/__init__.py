"""Stored messages: the context of an agent as ops of many devices (stored-message.md).

From the wire inwards: `shapes` read JSON strictly, `message` and `context_vm` are the tables of shapes, `content` and
`live` the gates behind decoding. `context` is a restored context, `movement` what may happen to it, `transactions` and
`render` what a model is shown of it, `pairing` what a provider accepts. `checkpoint` is the document that the original
kernel restores. `ops` and `session` are the server's own part: the ops of one session, and their fold.
"""
