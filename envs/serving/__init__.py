"""Environments behind HTTP, `ragen-verl env serve`; the client is `ragen_verl.env.hosting.client`."""
