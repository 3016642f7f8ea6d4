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

// staticCaching lets everybody keep a static answer, and has them ask after a minute whether it is still the same.
const staticCaching = "public, max-age=60"

// form is one representation of static content. Each has a tag of its own (RFC 9110 section 8.8.3.3).
type form struct {
	body    []byte
	packed  bool
	version int64
}

func newForm(body []byte, packed bool) form {
	sum := sha256.Sum256(body)
	return form{body, packed, int64(binary.BigEndian.Uint64(sum[:8]) >> 1)}
}

// Static returns a handler that answers GET with content that stays the same while the process runs: 304 where the client
// has it already, and as gzip where the client takes that. Without plain, which may be large, the answer is always packed;
// without packed, Static packs plain at the first request for it. The route needs Conditional.
func Static(media string, plain, packed []byte) echo.HandlerFunc {
	asIs := newForm(plain, false)
	small := sync.OnceValue(func() form {
		if packed == nil {
			return newForm(pack(plain), true)
		}
		return newForm(packed, true)
	})
	return func(c echo.Context) error {
		f := asIs
		if plain == nil || takesGzip(c.Request().Header.Values("Accept-Encoding")) {
			f = small()
		}
		known, err := known(c, f.version)
		if err != nil {
			return err
		}
		h := c.Response().Header()
		h.Set("Cache-Control", staticCaching)
		h.Set("Vary", "Accept-Encoding")
		if known {
			return c.NoContent(http.StatusNotModified)
		}
		if f.packed {
			h.Set("Content-Encoding", "gzip")
		}
		return c.Blob(http.StatusOK, media, f.body)
	}
}

// pack returns b as gzip.
func pack(b []byte) []byte {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is one of gzip's own
	}
	_, _ = z.Write(b) // a buffer takes all
	_ = z.Close()
	return out.Bytes()
}

// takesGzip reports whether Accept-Encoding allows gzip (RFC 9110 section 12.5.3). A header that was not sent allows it, too,
// but who sends none may not unpack it.
func takesGzip(sent []string) bool {
	takes := false
	for item := range strings.SplitSeq(strings.Join(sent, ","), ",") {
		coding, weight, _ := strings.Cut(item, ";")
		switch strings.ToLower(strings.Trim(coding, " \t")) {
		case "gzip", "x-gzip":
			return allowed(weight)
		case "*":
			takes = allowed(weight)
		}
	}
	return takes
}

// allowed reports whether a weight, such as q=0.5, is above 0. One that cannot be read does not count.
func allowed(weight string) bool {
	name, value, _ := strings.Cut(strings.Trim(weight, " \t"), "=")
	if !strings.EqualFold(name, "q") {
		return true
	}
	q, err := strconv.ParseFloat(value, 64)
	return err != nil || q > 0
}
