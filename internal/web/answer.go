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

// Raw is a JSON value kept as the client sent it, byte for byte. Body fills it, Answer and Marshal write it unchanged;
// encoding/json alone cannot: it drops the spaces of what a Marshaler returns. An empty one is null.
type Raw []byte

// marker begins the string that stands for a Raw until Marshal puts the bytes in. It is random, so nobody can send it.
var marker = []byte(`"` + rand.Text() + `:`)

// MarshalJSON writes a stand-in that only Marshal and Answer understand: write a Raw with those.
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

// Marshal is v as JSON, with each Raw in it as it was and with <, > and & as they are.
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

// standIn begins a Raw that stands for another one, whose number follows. It is random, so nobody can send it.
var standIn = []byte(rand.Text() + "#")

// appendUnmarked appends JSON to out, with each Raw in it as it was, and raws for their stand-ins.
func appendUnmarked(out, b []byte, raws []Raw) ([]byte, error) {
	before, rest, found := bytes.Cut(b, marker)
	for ; found; before, rest, found = bytes.Cut(rest, marker) {
		out = append(out, before...)
		end := bytes.IndexByte(rest, '"')
		if end < 0 {
			return nil, fmt.Errorf("a raw value without an end")
		}
		var err error
		began := len(out)
		if out, err = base64.StdEncoding.AppendDecode(out, rest[:end]); err != nil {
			return nil, fmt.Errorf("a raw value: %w", err)
		}
		if number, stands := bytes.CutPrefix(out[began:], standIn); stands && len(raws) > 0 {
			n, err := strconv.Atoi(string(number))
			if err != nil || n >= len(raws) {
				return nil, fmt.Errorf("a raw value that stands for nothing")
			}
			out = append(out[:began], raws[n]...)
		}
		rest = rest[end+1:]
	}
	return append(out, before...), nil
}

// Answer writes v as JSON with that status. A nil v, or status 204 or 304, is an answer without a body.
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
