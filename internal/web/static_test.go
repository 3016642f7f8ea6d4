package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
)

func unpack(t *testing.T, b []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func statics() (e *echo.Echo, plain string) {
	plain = strings.Repeat("content ", 1000)
	e = New(Options{Log: quiet()})
	e.GET("/both", Static("text/plain; charset=utf-8", []byte(plain), nil), Conditional)
	e.GET("/packed", Static("text/plain; charset=utf-8", nil, compress([]byte(plain))), Conditional)
	return e, plain
}

// A client that has the content already gets 304, for each form by the tag of that form.
func TestStaticContentIsSentOnce(t *testing.T) {
	t.Parallel()
	e, _ := statics()
	tags := map[string]string{}
	for _, accepted := range []string{"identity", "gzip"} {
		first, _ := send(e, "GET", "/both", "Accept-Encoding", accepted)
		tag := first.Header().Get("ETag")
		if first.Code != 200 || tag == "" || first.Header().Get("Cache-Control") != staticCaching || first.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: got %d, %v", accepted, first.Code, first.Header())
		}
		tags[tag] = accepted
		again, _ := send(e, "GET", "/both", "Accept-Encoding", accepted, "If-None-Match", `"7", W/`+tag)
		if again.Code != 304 || again.Body.Len() != 0 || again.Header().Get("ETag") != tag || again.Header().Get("Cache-Control") != staticCaching ||
			again.Header().Get("Vary") != "Accept-Encoding" || again.Header().Get("Content-Encoding") != "" {
			t.Errorf("%s again: got %d, %d bytes, %v", accepted, again.Code, again.Body.Len(), again.Header())
		}
		if other, _ := send(e, "GET", "/both", "Accept-Encoding", accepted, "If-None-Match", `"7"`); other.Code != 200 {
			t.Errorf("%s with another tag: got %d", accepted, other.Code)
		}
	}
	if len(tags) != 2 {
		t.Errorf("got tags %v, want one for each form", tags)
	}
}

func TestStaticContentHonoursIfMatch(t *testing.T) {
	t.Parallel()
	e, _ := statics()
	w, doc := send(e, "GET", "/both", "If-Match", `"7"`)
	if w.Code != 412 || doc["code"] != "version_mismatch" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("got %d %v, %v", w.Code, doc, w.Header())
	}
	if w, _ := send(e, "GET", "/both", "If-Match", "*"); w.Code != 200 {
		t.Errorf("*: got %d", w.Code)
	}
	if w, doc := send(e, "GET", "/both", "If-None-Match", "7"); w.Code != 400 || doc["code"] != "malformed_header" {
		t.Errorf("not a tag: got %d %v", w.Code, doc)
	}
}

func TestStaticContentIsPackedForWhoTakesGzip(t *testing.T) {
	t.Parallel()
	e, plain := statics()
	for sent, packed := range map[string]bool{
		"gzip": true, "GZIP": true, "x-gzip": true, "br, gzip;q=0.5": true, "deflate,\tgzip": true, "*": true, "br, *;q=0.1": true, "gzip; Q=1": true,
		"": false, "identity": false, "br": false, "gzip;q=0": false, "gzip; q=0.000, *": false, "*;q=0": false, "notgzip": false,
	} {
		w, _ := send(e, "GET", "/both", "Accept-Encoding", sent)
		body := w.Body.String()
		if packed != (w.Header().Get("Content-Encoding") == "gzip") {
			t.Errorf("%q: got encoding %q", sent, w.Header().Get("Content-Encoding"))
			continue
		}
		if packed {
			body = unpack(t, w.Body.Bytes())
		}
		if body != plain || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%q: got %d bytes, want %d", sent, len(body), len(plain))
		}
	}
	for _, sent := range []string{"", "gzip"} {
		if w, _ := send(e, "GET", "/packed", "Accept-Encoding", sent); w.Header().Get("Content-Encoding") != "gzip" || unpack(t, w.Body.Bytes()) != plain {
			t.Errorf("%q: got encoding %q", sent, w.Header().Get("Content-Encoding"))
		}
	}
}
