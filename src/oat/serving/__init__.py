"""A policy on the network: server, client and messages of the openpi protocol."""
