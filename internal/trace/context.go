package trace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
)

// Context names a span, as W3C Trace Context passes it on: the trace, the span that is the parent of what follows, and the flags. The
// zero Context names none.
type Context struct {
	Trace [16]byte
	Span  [8]byte
	Flags byte
}

// sampled is the flag of a trace whose spans are exported.
const sampled = 1

// TextLength is the length of a traceparent, and storedLength that of a stored Context, in bytes.
const (
	TextLength   = 55
	storedLength = 25
)

// Valid reports whether c names a span.
func (c Context) Valid() bool { return c.Trace != [16]byte{} && c.Span != [8]byte{} }

// Sampled reports whether spans of the trace are exported.
func (c Context) Sampled() bool { return c.Flags&sampled != 0 }

// AppendText appends c as a traceparent of version 00.
func (c Context) AppendText(b []byte) []byte {
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, c.Trace[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, c.Span[:])
	b = append(b, '-')
	return hex.AppendEncode(b, []byte{c.Flags})
}

// String returns c as a traceparent of version 00.
func (c Context) String() string { return string(c.AppendText(make([]byte, 0, TextLength))) }

// Parse reads a traceparent (W3C Trace Context 3.2). It reads the known part of a later version. ok is false if the standard refuses the
// text: version ff, capital letters, more than four fields in version 00, and ids of zeros.
func Parse(s string) (c Context, ok bool) {
	if len(s) < TextLength || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return Context{}, false
	}
	var version, flags [1]byte
	if !lowerHex(version[:], s[:2]) || !lowerHex(c.Trace[:], s[3:35]) || !lowerHex(c.Span[:], s[36:52]) || !lowerHex(flags[:], s[53:55]) {
		return Context{}, false
	}
	c.Flags = flags[0]
	switch {
	case version[0] == 0xff, version[0] == 0 && len(s) > TextLength, len(s) > TextLength && s[TextLength] != '-', !c.Valid():
		return Context{}, false
	}
	return c, true
}

// lowerHex decodes hexadecimal digits into b. It reports false for other characters, capital letters too.
func lowerHex(b []byte, digits string) bool {
	for i := range digits {
		if 'A' <= digits[i] && digits[i] <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(b, []byte(digits))
	return err == nil
}

// Stored returns c as the database holds it: 25 bytes, or nil if c names no span.
func (c Context) Stored() []byte {
	if !c.Valid() {
		return nil
	}
	b := append(make([]byte, 0, storedLength), c.Trace[:]...)
	return append(append(b, c.Span[:]...), c.Flags)
}

// Read returns the Context that Stored made; the zero Context for anything else.
func Read(stored []byte) (c Context) {
	if len(stored) != storedLength {
		return c
	}
	copy(c.Trace[:], stored)
	copy(c.Span[:], stored[16:])
	c.Flags = stored[24]
	return c
}

// Of derives a Context from a public id, for a tick or an operation that no exported trace contains. It is the same in each process, and
// not sampled.
func Of(id string) (c Context) {
	var text [64]byte // ids are shorter, so this allocates nothing
	sum := sha256.Sum256(append(text[:0], id...))
	copy(c.Trace[:], sum[:])
	copy(c.Span[:], sum[16:])
	return c
}

type contextKey struct{}

// With returns a context that carries c; ctx itself if c names no span.
func With(ctx context.Context, c Context) context.Context {
	if !c.Valid() {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, c)
}

// From returns what With put into ctx: the span that continues a request. It is the zero Context if there is none.
func From(ctx context.Context) Context {
	c, _ := ctx.Value(contextKey{}).(Context)
	return c
}
