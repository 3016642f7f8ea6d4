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

// inbound is a request's body: unpacked where it came packed, and cut off beyond its limit. Its errors are faults.
type inbound struct {
	wire     io.ReadCloser // as the connection gives it
	length   int64         // that the request says it has; below 0: it does not say
	packed   bool
	unpacker *gzip.Reader
	sent     counted // what came of a packed one
	turn     *turn   // nil: it is not large
	limit    int64   // below 0: none
	read     int64
	ended    bool // the wire has been read to its end
}

// inboundKey is where a request's inbound lies.
const inboundKey = "web.inbound"

// A packed body may grow to mostGrowth times its size. This counts once it is larger than freeGrowth, or than freeLimited if it
// has a limit of bytes. What people send grows less; a body that is made to grow grows a thousand times.
const (
	mostGrowth  = 200
	freeGrowth  = 16 << 20
	freeLimited = 1 << 20
)

// counted counts what is read of a body.
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
			b := &inbound{wire: r.Body, length: r.ContentLength, limit: limit}
			switch encoding := strings.ToLower(strings.Join(r.Header.Values("Content-Encoding"), ", ")); encoding {
			case "", "identity":
			case "gzip", "x-gzip":
				b.packed = true
			default:
				f := fault.New(http.StatusUnsupportedMediaType, "unsupported_encoding", "a body is sent as it is or as gzip, not as %q", encoding)
				f.Header = map[string]string{"Accept-Encoding": "gzip"}
				return f
			}
			r.Body = b
			c.Set(inboundKey, b)
			return next(c)
		}
	}
}

// BodyLimit gives a route another limit of bytes, counted after unpacking. Below 0 there is none.
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
	from, err := b.source()
	if err != nil {
		return 0, err
	}
	if b.limit >= 0 {
		p = p[:min(int64(len(p)), b.limit-b.read+1)] // one more than may be, to know that there is more
	}
	n, err := from.Read(p)
	b.read += int64(n)
	b.ended = b.ended || err == io.EOF
	if b.limit >= 0 && b.read > b.limit {
		b.read = b.limit + 1
		return 0, tooLarge(b.limit)
	}
	if b.packed && b.read > b.free() && b.read > mostGrowth*b.sent.n {
		return 0, fault.New(http.StatusRequestEntityTooLarge, "body_too_large", "the body grows by more than %d times as it is unpacked: send it as it is, or in parts", mostGrowth)
	}
	return n, readFault(err)
}

// mostAhead is how much of a large packed body is read before it is the request's turn to unpack it.
const mostAhead = 1 << 20

// takeTurn waits until the body may be unpacked further. The first time it reads ahead, as a client may send slowly.
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
		n, err := io.CopyN(&ahead, b.wire, reserveStep)
		if n < reserveStep && err == io.EOF {
			break
		}
		if err != nil {
			return readFault(err)
		}
	}
	b.sent.Reader = io.MultiReader(&ahead, &patient{b.wire, b.turn})
	return b.turn.begin(ctx)
}

// patient gives up the turn of a request while its wire is read.
type patient struct {
	io.Reader
	turn *turn
}

func (p *patient) Read(b []byte) (int, error) {
	p.turn.end()
	return p.Reader.Read(b)
}

func (b *inbound) free() int64 {
	if b.limit < 0 {
		return freeGrowth
	}
	return freeLimited
}

// announced is how many bytes the body has if the request says so and they are allowed; otherwise 0.
func (b *inbound) announced() int64 {
	if b.packed || b.length < 0 || b.limit >= 0 && b.length > b.limit {
		return 0
	}
	return b.length
}

func tooLarge(limit int64) error {
	return fault.New(http.StatusRequestEntityTooLarge, "body_too_large", "the body is larger than %d bytes", limit)
}

func (b *inbound) source() (io.Reader, error) {
	if !b.packed && b.limit >= 0 && b.length > b.limit { // it is not waited for
		return nil, tooLarge(b.limit)
	}
	if !b.packed {
		return b.wire, nil
	}
	if b.unpacker != nil {
		return b.unpacker, nil
	}
	b.sent.Reader = b.wire
	z, err := gzip.NewReader(&b.sent)
	if err != nil {
		return nil, readFault(err)
	}
	b.unpacker = z
	return z, nil
}

// unreadTime is how long the rest of a body is waited for whose request is refused already.
const unreadTime = time.Second

// hurry bounds how long net/http reads on in the body of a request that is refused, which it does before it answers.
func hurry(c echo.Context, r *http.Request) {
	b, ok := c.Get(inboundKey).(*inbound)
	if r.ContentLength == 0 || ok && b.ended {
		return
	}
	_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Now().Add(unreadTime)) // a recorder has none, and needs none
}

// Close leaves the wire to the server, which drains it or cuts it.
func (b *inbound) Close() error { return b.wire.Close() }

// readFault is what is wrong with a body that cannot be read: it came too slowly, or broken.
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
