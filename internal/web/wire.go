package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// wires is a listener that detects requests with both Content-Length and Transfer-Encoding, which are used for request smuggling
// (RFC 9112 section 6.1). net/http silently drops the length of such a request, so only the bytes on the connection show it.
type wires struct{ net.Listener }

func (l wires) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c}, nil
}

// wire is a connection that parses the framing of its requests: it reads heads line by line, and skips bodies.
type wire struct {
	net.Conn
	line               []byte // the current line, up to longestLine
	field              string // the header before it, which the line may continue
	started            bool   // the head has a line
	hasLength, chunked bool   // the head has Content-Length, Transfer-Encoding
	length             int64
	skip               int64 // bytes of the body that are still to come
	part               part
	ambiguous          atomic.Bool
	last               atomic.Bool // no other request follows: see CloseAfter
	lingered           atomic.Bool // CloseWrite was called
	ended              atomic.Bool // a read or a write has failed; a read past its deadline does not count
}

// part is the part of a request that the current line belongs to.
type part int

const (
	inHead part = iota
	inChunkSize
	inChunkEnd
	inTrailer
)

func (w *wire) Read(p []byte) (int, error) {
	if w.last.Load() {
		return 0, io.EOF
	}
	n, err := w.Conn.Read(p)
	w.follow(p[:n])
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		w.ended.Store(true)
	}
	return n, err
}

// longestLine is the maximum length of a buffered line. net/http refuses a larger head.
const longestLine = maxHeaders + 8<<10

func (w *wire) follow(b []byte) {
	for len(b) > 0 {
		if w.skip > 0 {
			n := min(w.skip, int64(len(b)))
			w.skip -= n
			b = b[n:]
			continue
		}
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		w.line = append(w.line, line[:min(len(line), longestLine-min(longestLine, len(w.line)))]...)
		if !whole {
			return
		}
		w.end(strings.ToLower(strings.TrimSuffix(string(w.line), "\r")))
		w.line = w.line[:0]
		b = rest
	}
}

// end processes a complete line.
func (w *wire) end(line string) {
	switch w.part {
	case inHead:
		w.header(line)
	case inChunkSize:
		size, _, _ := strings.Cut(line, ";")
		w.skip, _ = strconv.ParseInt(strings.TrimSpace(size), 16, 64) // net/http refuses an invalid size
		w.part = inChunkEnd
		if w.skip <= 0 {
			w.skip, w.part = 0, inTrailer
		}
	case inChunkEnd:
		w.part = inChunkSize
	case inTrailer:
		if line == "" {
			w.part = inHead
		}
	}
}

// header processes a line of a head. A line that begins with a blank continues the header before it (RFC 9112 section 5.2), so a
// header is complete when the next line arrives.
func (w *wire) header(line string) {
	if line != "" && strings.Contains(" \t", line[:1]) {
		if len(w.field) < longestLine {
			w.field += " " + strings.Trim(line, " \t")
		}
		return
	}
	w.framing(w.field)
	w.field = line
	switch {
	case line == "" && !w.started:
		return
	case line == "":
		if w.hasLength && w.chunked {
			w.ambiguous.Store(true)
		}
		if w.chunked {
			w.part = inChunkSize
		} else {
			w.skip = max(0, w.length)
		}
		w.started, w.hasLength, w.chunked, w.length = false, false, false, 0
		return
	}
	w.started = true
}

// framing processes a header that determines the length of a body.
func (w *wire) framing(header string) {
	name, value, _ := strings.Cut(header, ":")
	switch name {
	case "content-length":
		w.hasLength = true
		w.length, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	case "transfer-encoding":
		w.chunked = true
	}
}

// storeConn stores a connection in the context of its requests.
func storeConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, wireKey, c)
}

// disconnected reports whether the client of a request is gone. client is the context that net/http gave to the request. net/http also ends
// it when the deadline for reading passes. That happens if the process stands still for a while, and the client still waits for its answer.
func disconnected(client context.Context) bool {
	if client.Err() == nil {
		return false
	}
	w, ok := client.Value(wireKey).(*wire)
	return !ok || w.ended.Load()
}

// unambiguous answers 400 and closes the connection if one of its requests has two different lengths.
func unambiguous(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		w, ok := c.Request().Context().Value(wireKey).(*wire)
		if ok && w.ambiguous.Load() {
			f := fault.New(http.StatusBadRequest, "ambiguous_length", "a request must not have both Content-Length and Transfer-Encoding")
			f.Header = map[string]string{"Connection": "close"}
			return f
		}
		return next(c)
	}
}
