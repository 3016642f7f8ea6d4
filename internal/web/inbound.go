package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/internal/fault"
)

// inbound is a request's body. It decompresses gzip and enforces the limit. Its errors are faults.
type inbound struct {
	source     io.ReadCloser // the body from the connection
	length     int64         // Content-Length; below 0: unknown
	compressed bool
	gzip       *gzip.Reader
	sent       counted // the compressed bytes
	turn       *turn   // nil: the body is not large
	limit      int64   // bytes; below 0: none
	read       int64
	ended      bool // source has returned its last byte
}

// inboundKey is the context key of a request's inbound.
const inboundKey = "web.inbound"

// A compressed body may grow to mostGrowth times its size. The rule applies above freeGrowth bytes, or above freeLimited bytes if
// the body has a limit. Real bodies grow less than this. A decompression bomb grows a thousand times.
const (
	mostGrowth  = 200
	freeGrowth  = 16 << 20
	freeLimited = 1 << 20
)

// counted is a reader that counts its bytes.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

func limited(limit int64) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := c.Request()
			if r.Body == nil {
				r.Body = http.NoBody
			}
			b := &inbound{source: r.Body, length: r.ContentLength, limit: limit}
			switch encoding := strings.ToLower(strings.Join(r.Header.Values("Content-Encoding"), ", ")); encoding {
			case "", "identity":
			case "gzip", "x-gzip":
				b.compressed = true
			default:
				f := fault.New(http.StatusUnsupportedMediaType, "unsupported_encoding", "Content-Encoding must be gzip or absent, not %q", encoding)
				f.Header = map[string]string{"Accept-Encoding": "gzip"}
				return f
			}
			r.Body = b
			c.Set(inboundKey, b)
			return next(c)
		}
	}
}

// BodyLimit sets a route's own limit of body bytes, counted after decompression. A limit below 0 means none.
func BodyLimit(bytes int64) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if b, ok := c.Request().Body.(*inbound); ok {
				b.limit = bytes
			}
			return next(c)
		}
	}
}

func (b *inbound) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	from, err := b.reader()
	if err != nil {
		return 0, err
	}
	if b.limit >= 0 {
		p = p[:min(int64(len(p)), b.limit-b.read+1)] // one byte above the limit shows that the body is too large
	}
	n, err := from.Read(p)
	b.read += int64(n)
	b.ended = b.ended || err == io.EOF
	if b.limit >= 0 && b.read > b.limit {
		b.read = b.limit + 1
		return 0, tooLarge(b.limit)
	}
	if b.compressed && b.read > b.free() && b.read > mostGrowth*b.sent.n {
		return 0, fault.New(http.StatusRequestEntityTooLarge, "body_too_large", "the decompressed body is more than %d times as large as the compressed one: send it uncompressed, or in parts", mostGrowth)
	}
	return n, readFault(err)
}

// mostAhead is how many bytes of a large compressed body are read before the request waits for its CPU turn.
const mostAhead = 1 << 20

// takeTurn waits for the CPU turn to decompress more of the body. The first call reads ahead, so that a slow client does not hold a
// turn.
func (b *inbound) takeTurn(ctx context.Context, a *account) error {
	if b.turn != nil {
		return b.turn.begin(ctx)
	}
	b.turn = &turn{account: a}
	var ahead bytes.Buffer
	for ahead.Len() < mostAhead {
		if err := a.take(reserveStep); err != nil {
			return err
		}
		n, err := io.CopyN(&ahead, b.source, reserveStep)
		if n < reserveStep && err == io.EOF {
			break
		}
		if err != nil {
			return readFault(err)
		}
	}
	b.sent.Reader = io.MultiReader(&ahead, &yielding{b.source, b.turn})
	return b.turn.begin(ctx)
}

// yielding is a reader that ends the request's turn before each read from the connection.
type yielding struct {
	io.Reader
	turn *turn
}

func (p *yielding) Read(b []byte) (int, error) {
	p.turn.end()
	return p.Reader.Read(b)
}

func (b *inbound) free() int64 {
	if b.limit < 0 {
		return freeGrowth
	}
	return freeLimited
}

// announced returns the Content-Length of an uncompressed body, or 0 if it is unknown or above the limit.
func (b *inbound) announced() int64 {
	if b.compressed || b.length < 0 || b.limit >= 0 && b.length > b.limit {
		return 0
	}
	return b.length
}

func tooLarge(limit int64) error {
	return fault.New(http.StatusRequestEntityTooLarge, "body_too_large", "the body is larger than %d bytes", limit)
}

func (b *inbound) reader() (io.Reader, error) {
	if !b.compressed && b.limit >= 0 && b.length > b.limit { // refused before the client sends it
		return nil, tooLarge(b.limit)
	}
	if !b.compressed {
		return b.source, nil
	}
	if b.gzip != nil {
		return b.gzip, nil
	}
	b.sent.Reader = b.source
	z, err := gzip.NewReader(&b.sent)
	if err != nil {
		return nil, readFault(err)
	}
	b.gzip = z
	return z, nil
}

// drainTime bounds how long the server reads the rest of a body after it has refused the request.
const drainTime = time.Second

// boundDrain sets a read deadline for the rest of a refused request's body. net/http reads that rest before it sends the answer.
func boundDrain(c echo.Context, r *http.Request) {
	b, ok := c.Get(inboundKey).(*inbound)
	if r.ContentLength == 0 || ok && b.ended {
		return
	}
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(drainTime)) // a test's recorder has no deadline to set
}

// Close closes the connection's body: the server drains it, or closes the connection.
func (b *inbound) Close() error { return b.source.Close() }

// readFault returns the fault of a body that could not be read: a timeout, or broken data. It returns nil and io.EOF unchanged.
func readFault(err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	f := fault.Malformed("malformed_body", "the body could not be read to its end")
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		f = fault.New(http.StatusRequestTimeout, "body_timeout", "the body came too slowly")
	}
	f.Header = map[string]string{"Connection": "close"}
	return withCause(f, err)
}
