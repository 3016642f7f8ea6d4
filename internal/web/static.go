package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/labstack/echo/v4"
)

// staticCaching lets any cache store a static answer for a minute. After that the cache must revalidate it.
const staticCaching = "public, max-age=60"

// representation is static content, plain or compressed. Each has its own ETag (RFC 9110 section 8.8.3.3).
type representation struct {
	body       []byte
	compressed bool
	version    int64
}

func newRepresentation(body []byte, compressed bool) representation {
	sum := sha256.Sum256(body)
	return representation{body, compressed, int64(binary.BigEndian.Uint64(sum[:8]) >> 1)}
}

// Static returns a handler that answers GET with constant content. It answers 304 if the client already has the content, and uses gzip
// if the client accepts it. With a nil plain every answer is gzip. With a nil zipped, Static compresses plain at the first request for
// it. The route needs Conditional.
func Static(media string, plain, zipped []byte) echo.HandlerFunc {
	return constant(media, staticCaching, plain, zipped)
}

// StaticFor is Static with its own Cache-Control.
func StaticFor(media, caching string, plain []byte) echo.HandlerFunc {
	return constant(media, caching, plain, nil)
}

func constant(media, caching string, plain, zipped []byte) echo.HandlerFunc {
	identity := newRepresentation(plain, false)
	compressed := sync.OnceValue(func() representation {
		if zipped == nil {
			return newRepresentation(compress(plain), true)
		}
		return newRepresentation(zipped, true)
	})
	return func(c echo.Context) error {
		f := identity
		if plain == nil || acceptsGzip(c.Request().Header.Values("Accept-Encoding")) {
			f = compressed()
		}
		known, err := known(c, f.version)
		if err != nil {
			return err
		}
		h := c.Response().Header()
		h.Set("Cache-Control", caching)
		h.Set("Vary", "Accept-Encoding")
		if known {
			return c.NoContent(http.StatusNotModified)
		}
		if f.compressed {
			h.Set("Content-Encoding", "gzip")
		}
		return c.Blob(http.StatusOK, media, f.body)
	}
}

// compress returns b as gzip.
func compress(b []byte) []byte {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is valid
	}
	_, _ = z.Write(b) // a buffer returns no error
	_ = z.Close()
	return out.Bytes()
}

// acceptsGzip reports whether Accept-Encoding allows gzip (RFC 9110 section 12.5.3). Without the header it returns false: the RFC
// allows gzip then, but such a client may be unable to decompress it.
func acceptsGzip(sent []string) bool {
	accepts := false
	for item := range strings.SplitSeq(strings.Join(sent, ","), ",") {
		coding, weight, _ := strings.Cut(item, ";")
		switch strings.ToLower(strings.Trim(coding, " \t")) {
		case "gzip", "x-gzip":
			return allowed(weight)
		case "*":
			accepts = allowed(weight)
		}
	}
	return accepts
}

// allowed reports whether a weight, such as q=0.5, is above 0. An unreadable or absent weight counts as 1.
func allowed(weight string) bool {
	name, value, _ := strings.Cut(strings.Trim(weight, " \t"), "=")
	if !strings.EqualFold(name, "q") {
		return true
	}
	q, err := strconv.ParseFloat(value, 64)
	return err != nil || q > 0
}
