package web

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// wires are connections that are watched for requests with both Content-Length and Transfer-Encoding, the means of
// smuggling one request inside another past a proxy (RFC 9112 section 6.1). net/http drops the length of such a request
// in silence, so it can be seen on the wire only.
type wires struct{ net.Listener }

func (l wires) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c}, nil
}

// wire follows the requests that come over a connection: heads, by line, and over the bodies between them.
type wire struct {
	net.Conn
	line            []byte // the line at hand, as far as it matters
	field           string // the header before it, which the line may continue
	started         bool   // the head has a line
	lengthy, choppy bool   // the head has Content-Length, Transfer-Encoding
	length          int64
	skip            int64 // bytes of a body that are still to come
	part            part
	ambiguous       atomic.Bool
}

// part is what a line on the wire belongs to.
type part int

const (
	inHead part = iota
	inChunkSize
	inChunkEnd
	inTrailer
)

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.follow(p[:n])
	return n, err
}

// longestLine is how much of a line is kept. net/http refuses a head that is larger.
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

// end takes note of a line.
func (w *wire) end(line string) {
	switch w.part {
	case inHead:
		w.header(line)
	case inChunkSize:
		size, _, _ := strings.Cut(line, ";")
		w.skip, _ = strconv.ParseInt(strings.TrimSpace(size), 16, 64) // what is no size, net/http refuses
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

// header takes note of a line of a head. A line that begins with a blank continues the header before it (RFC 9112 section
// 5.2), so a header is known to be whole once the next line has come.
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
		if w.lengthy && w.choppy {
			w.ambiguous.Store(true)
		}
		if w.choppy {
			w.part = inChunkSize
		} else {
			w.skip = max(0, w.length)
		}
		w.started, w.lengthy, w.choppy, w.length = false, false, false, 0
		return
	}
	w.started = true
}

// framing takes note of a header that tells where a body ends.
func (w *wire) framing(header string) {
	name, value, _ := strings.Cut(header, ":")
	switch name {
	case "content-length":
		w.lengthy = true
		w.length, _ = strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	case "transfer-encoding":
		w.choppy = true
	}
}

// watched keeps a connection where its requests find it.
func watched(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, wireKey, c)
}

// unambiguous refuses, and hangs up on, a connection over which a request came that can be read in two ways.
func unambiguous(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		w, ok := c.Request().Context().Value(wireKey).(*wire)
		if ok && w.ambiguous.Load() {
			f := fault.New(http.StatusBadRequest, "ambiguous_length", "a request bears Content-Length or Transfer-Encoding, not both")
			f.Header = map[string]string{"Connection": "close"}
			return f
		}
		return next(c)
	}
}
