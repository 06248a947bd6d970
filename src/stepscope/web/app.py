# SPDX-License-Identifier: Apache-2.0
"""The WSGI app: finds the route, checks who asks, and turns answers and problems into responses."""

from __future__ import annotations

import gzip
import hashlib
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson
from werkzeug.datastructures import Headers
from werkzeug.exceptions import HTTPException, MethodNotAllowed, RequestEntityTooLarge
from werkzeug.routing import Map, Rule
from werkzeug.wrappers import Request
from werkzeug.wrappers import Response as PlainResponse

from stepscope.web import guard, routes
from stepscope.web.catalogue import Catalogue
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem
from stepscope.web.request import Settings, ViewRequest
from stepscope.web.routes import Answer, Download

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LOG = logging.getLogger("stepscope.web")
API = "/api/v1/"
STATIC = Path(__file__).parent / "static"
MOST_BODY = 1 << 20
SMALLEST_PACKED = 1000  # bytes from which compression is worth it
PLUGIN = "/data/plugin/"
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; worker-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
MEDIA = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8", ".json": "application/json", ".svg": "image/svg+xml", ".png": "image/png",
    ".woff2": "font/woff2", ".ico": "image/x-icon", ".map": "application/json", ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
}  # fmt: skip
NO_PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>stepscope</title>"
    "<p>The page of the viewer is not part of this installation. The data are under <a href=api/v1/runs>api/v1/runs</a>."
)
FOREVER = "private, max-age=31536000, immutable"


class App:
    """The viewer as one WSGI callable; works below any path."""

    def __init__(self, catalogue: Catalogue, settings: Settings | None = None, *, static: Path = STATIC):
        self.catalogue = catalogue
        self.settings = settings or Settings()
        self.static = static
        rules = [Rule(f"{API}{path}", endpoint=path, methods=["GET"]) for path in routes.GET]
        rules += [Rule(f"{API}{path}", endpoint=path, methods=["POST"]) for path in routes.POST]
        rules += [Rule(path, endpoint="#page", methods=["GET"]) for path in ("/", "/index.html")]
        rules += [
            Rule("/index.js", endpoint="#entry", methods=["GET"]),
            Rule("/static/<path:file>", endpoint="#static", methods=["GET"]),
        ]
        self._map = Map(rules, strict_slashes=False, merge_slashes=False)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        request.max_content_length = MOST_BODY
        return self._safe(request)(environ, start_response)

    def _safe(self, request: Request) -> Response:
        """The response, whatever happens: a failed route never takes the others down."""
        number = uuid4().hex[:12]
        try:
            response = self._answer(request)
        except Problem as problem:
            # A page that asks again until it is there would fill the browser's log with errors (RFC 7240).
            patient = problem.code == "loading" and "respond-async" in request.headers.get("Prefer", "")
            response = _json(problem.body(number), 202 if patient else problem.status)
        except RequestEntityTooLarge:
            response = _json(Problem(413, "too_large", f"the body is larger than {MOST_BODY:,} bytes").body(number), 413)
        except MethodNotAllowed as problem:
            response = _json(Problem(405, "method", f"{request.method} is not possible here").body(number), 405)
            response.headers["Allow"] = ", ".join(problem.valid_methods or ())
        except HTTPException as problem:
            status = problem.code or 404
            response = _json(Problem(status, "not_found" if status == 404 else "bad_request", problem.name).body(number), status)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            LOG.exception("%s: %s %s failed", number, request.method, request.path)
            body = {"error": {"code": "internal", "title": "a fault in stepscope; the log has the details", "id": number}}
            response = _json(body, 500)
        return _finish(request, response)

    def _answer(self, request: Request) -> Response:
        token = self._check(request)
        path = _own_path(request.path)
        endpoint, values = self._map.bind("", path_info=path).match(method=request.method)
        response = self._file(endpoint, values) if endpoint.startswith("#") else self._api(request, endpoint)
        if token is not None and request.args.get("token") == token:
            response.set_cookie(guard.cookie_name(token), token, httponly=True, samesite="Strict")
        return response

    def _check(self, request: Request) -> str | None:
        settings = self.settings
        if settings.hosts is not None:
            guard.check_host(request.headers.get("Host", ""), settings.hosts)
        if request.method not in ("GET", "HEAD"):
            guard.check_origin(dict(request.headers), request.headers.get("Host", "") if settings.hosts is not None else "")
        if settings.token is not None:
            kind, _, bearer = request.headers.get("Authorization", "").partition(" ")
            tokens = [
                request.args.get("token", ""),
                request.cookies.get(guard.cookie_name(settings.token), ""),
                bearer if kind.lower() == "bearer" else "",
            ]
            guard.check_token(settings.token, tokens)
        return settings.token

    def _api(self, request: Request, path: str) -> Response:
        body = _body(request) if request.method == "POST" else None
        view_request = ViewRequest(self.catalogue, self.settings, Query(request.args.to_dict(flat=False), body))
        try:
            answer: Answer = (routes.POST if request.method == "POST" else routes.GET)[path](view_request)
        except Problem as problem:
            raise view_request.explain(problem) from None
        response = _download(answer) if isinstance(answer, Download) else _json(answer)
        response.headers["Cache-Control"] = FOREVER if view_request.immutable and request.method != "POST" else "no-cache"
        return response

    def _file(self, endpoint: str, values: Mapping[str, Any]) -> Response:
        name = {"#page": "index.html", "#entry": "index.js"}.get(endpoint) or values["file"]
        path = guard.inside(self.static, name)
        if not path.is_file() or path.suffix not in MEDIA:
            if endpoint == "#page":
                return Response(NO_PAGE, mimetype="text/html")
            raise Problem(404, "not_found", "no such file")
        response = Response(path.read_bytes(), content_type=MEDIA[path.suffix])
        response.headers["Cache-Control"] = "no-cache"
        return response


class Response(PlainResponse):
    """An answer that names its type even when the client has it already (304)."""

    def get_wsgi_headers(self, environ: WSGIEnvironment) -> Headers:
        headers = super().get_wsgi_headers(environ)
        if self.status_code == 304 and "Content-Type" in self.headers:
            headers["Content-Type"] = self.headers["Content-Type"]
        return headers


def _own_path(path: str) -> str:
    """The path inside the app; TensorBoard hands on its own path in front."""
    at = path.find(PLUGIN)
    if at < 0:
        return path
    rest = path[at + len(PLUGIN) :].partition("/")[2]
    return f"/{rest}"


def _body(request: Request) -> Any:
    # A form of a foreign page cannot send this type without asking first.
    if request.mimetype != "application/json":
        raise Problem(415, "content_type", "the body must be application/json")
    if (request.content_length or 0) > MOST_BODY:
        raise RequestEntityTooLarge
    try:
        return orjson.loads(request.get_data(cache=False) or b"null")
    except orjson.JSONDecodeError as problem:
        raise Problem(400, "bad_request", "the request body is not valid JSON", detail=str(problem)[:200]) from None


def _json(body: Any, status: int = 200) -> Response:
    data = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return Response(data, status=status, content_type="application/json")


def _download(answer: Download) -> Response:
    response = Response(answer.data, content_type=answer.media)
    if answer.name:
        response.headers["Content-Disposition"] = f'attachment; filename="{answer.name}"'
    return response


def _finish(request: Request, response: Response) -> Response:
    """Headers that every answer has, gzip when accepted, and 304 when the client already has it."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    response.headers.setdefault("Cache-Control", "no-store")
    if response.mimetype == "text/html":
        response.headers["Content-Security-Policy"] = POLICY
    wants_gzip = bool(request.accept_encodings["gzip"])
    response.vary.add("Accept-Encoding")
    if response.is_streamed:
        if wants_gzip:
            response.response = _gzip_stream(response.response)
            response.headers["Content-Encoding"] = "gzip"
        return response
    data = response.get_data()
    if response.status_code == 200:
        response.set_etag(hashlib.blake2b(data, digest_size=12).hexdigest(), weak=True)
        if request.method in ("GET", "HEAD"):
            response.make_conditional(request)
    if (
        wants_gzip
        and response.status_code != 304
        and len(data) >= SMALLEST_PACKED
        and response.mimetype not in ("image/png", "font/woff2")
    ):
        response.set_data(gzip.compress(data, 4, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
    return response


def _gzip_stream(parts: Iterable[bytes | str]) -> Iterator[bytes]:
    pack = zlib.compressobj(4, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    for part in parts:
        yield pack.compress(part if isinstance(part, bytes) else part.encode())
    yield pack.flush()
