"""A server of the Model Context Protocol over its pipes: a box with a code that follows from the seed."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("boxes")
state = {"code": 0, "open": False}


@server.tool()
def begin(seed: int) -> str:
    """Close the box and choose its code."""
    state.update(code=seed % 10, open=False)
    return "A box is closed."


@server.tool()
def look() -> str:
    """Read the note."""
    return f"The code is {state['code']}."


@server.tool()
def open_box(code: int) -> str:
    """Open the box."""
    state["open"] = code == state["code"]
    return "It opens." if state["open"] else "It stays closed."


@server.tool()
def score() -> str:
    """1 for an open box."""
    return f"score: {float(state['open'])}"


if __name__ == "__main__":
    server.run()
