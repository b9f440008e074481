"""Launching ranks: a fork server with torch preloaded, standby ranks, supervision, and plain values back.

Read in this order: `api` (what a cell calls), `client` (the kernel's end of the fork server), `server` (the fork
server), `rank` (what one rank does), `supervise` (the kernel watches a run), `plain` (what may come back).
"""
