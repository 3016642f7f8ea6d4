package web

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/labstack/echo/v4"
)

// Raw is a JSON value exactly as the client sent it, byte for byte. Body reads it, and Answer and Marshal write it unchanged.
// encoding/json alone cannot do so: it removes the spaces from a Marshaler's result. An empty Raw is null.
type Raw []byte

// marker begins the placeholder string of a Raw, which Marshal replaces by the bytes. It is random, so no client can send it.
var marker = []byte(`"` + rand.Text() + `:`)

// MarshalJSON writes a placeholder that only Marshal and Answer understand. Write a Raw with those two.
func (r Raw) MarshalJSON() ([]byte, error) {
	if len(r) == 0 {
		return []byte("null"), nil
	}
	b := make([]byte, 0, len(marker)+base64.StdEncoding.EncodedLen(len(r))+1)
	b = append(b, marker...)
	b = base64.StdEncoding.AppendEncode(b, r)
	return append(b, '"'), nil
}

// UnmarshalJSON keeps a copy of the value.
func (r *Raw) UnmarshalJSON(b []byte) error {
	*r = append((*r)[:0], b...)
	return nil
}

// Marshal returns v as JSON. It writes each Raw unchanged, and does not escape <, > and &.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if !bytes.Contains(text, marker) {
		return text, nil
	}
	return appendUnmarked(make([]byte, 0, len(text)), text, nil)
}

// reference begins a Raw that stands for another Raw; the index of the other one follows. It is random, so no client can send it.
var reference = []byte(rand.Text() + "#")

// appendUnmarked appends JSON to out. It replaces each placeholder by its Raw, and each reference by the element of raws.
func appendUnmarked(out, b []byte, raws []Raw) ([]byte, error) {
	before, rest, found := bytes.Cut(b, marker)
	for ; found; before, rest, found = bytes.Cut(rest, marker) {
		out = append(out, before...)
		end := bytes.IndexByte(rest, '"')
		if end < 0 {
			return nil, fmt.Errorf("a raw value has no end")
		}
		var err error
		began := len(out)
		if out, err = base64.StdEncoding.AppendDecode(out, rest[:end]); err != nil {
			return nil, fmt.Errorf("a raw value: %w", err)
		}
		if number, refers := bytes.CutPrefix(out[began:], reference); refers && len(raws) > 0 {
			n, err := strconv.Atoi(string(number))
			if err != nil || n >= len(raws) {
				return nil, fmt.Errorf("a raw value refers to a missing one")
			}
			out = append(out[:began], raws[n]...)
		}
		rest = rest[end+1:]
	}
	return append(out, before...), nil
}

// Answer writes v as JSON with the status. With a nil v, or status 204 or 304, the answer has no body.
func Answer(c echo.Context, status int, v any) error {
	if v == nil || status == 204 || status == 304 {
		return c.NoContent(status)
	}
	b, err := Marshal(v)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return c.Blob(status, "application/json", b)
}
