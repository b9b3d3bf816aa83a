"""`post_json`: a JSON request of an environment to a server, with a time limit and retries."""

from __future__ import annotations

import json
import time
from typing import Any

from ragen_verl.env.http import client
from ragen_verl.errors import RecipeError

__all__ = ["check_url", "post_json"]


def check_url(url: str, what: str) -> None:
    """Raise RecipeError unless `url` is an http or https address; `what` names the argument."""
    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise RecipeError(f"{what} must be an address that begins with http:// or https://, not {url!r}.")


def post_json(url: str, body: dict[str, Any], *, timeout: float, retries: int, token: str = "") -> Any:
    """POST `body` to `url` and return the JSON of the answer.

    A failed connection, a time-out, an answer that is no JSON and the statuses 429 and 5xx are tried again after 0.1,
    0.2, 0.4 .. seconds, at most 5.

    Args:
        url: the address.
        body: the data to send as JSON.
        timeout: seconds that one attempt may take to connect or to wait for more of the answer.
        retries: attempts after the first one.
        token: sent as a bearer token if not empty.

    Raises:
        ConnectionError: the server gave no usable answer; such an episode must not be scored.
    """
    import httpx

    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    content = json.dumps(body)  # httpx's own encoding fails on a lone surrogate, which a model can write
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(min(5.0, 0.05 * 2**attempt))
        try:
            answer = client().post(url, content=content, headers=headers, timeout=timeout, follow_redirects=True)
            if answer.is_success:
                return answer.json()
            problem = f"status {answer.status_code}"
            if answer.status_code != 429 and answer.status_code < 500:
                break
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, RecursionError) as error:  # the last two: no JSON
            problem = str(error) or type(error).__name__
    raise ConnectionError(f"{url} gave no answer ({problem}): check that the server runs there.")
