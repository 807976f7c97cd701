"""The peers, each in a process of its own with its published package, driven by `bench.rows_peers`.

They run in another environment, so nothing here imports Foldpoint.
"""
