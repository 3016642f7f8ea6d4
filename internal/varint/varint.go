// Package varint reads rows of unsigned varints, as encoding/binary writes them.
package varint

import "encoding/binary"

// Reader reads what is left of a row. After a number that cannot be read all others are zero, and Broken reports true.
type Reader struct {
	rest   []byte
	broken bool
}

// NewReader returns a reader of b, which it does not change.
func NewReader(b []byte) Reader { return Reader{rest: b} }

// Next returns the next number.
func (r *Reader) Next() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		return r.fail()
	}
	r.rest = r.rest[n:]
	return v
}

// Byte returns the next byte as it is.
func (r *Reader) Byte() byte {
	if len(r.rest) == 0 {
		return byte(r.fail())
	}
	c := r.rest[0]
	r.rest = r.rest[1:]
	return c
}

// Count returns the next number where it is at most the one given. A larger one cannot be read: a broken row makes nobody allocate
// much.
func (r *Reader) Count(most int) int {
	n := r.Next()
	if n > uint64(most) {
		return int(r.fail())
	}
	return int(n)
}

func (r *Reader) fail() uint64 {
	r.broken, r.rest = true, nil
	return 0
}

// Rest returns what was not read yet.
func (r *Reader) Rest() []byte { return r.rest }

// Broken reports whether something could not be read.
func (r *Reader) Broken() bool { return r.broken }

// Whole reports whether everything was read, and nothing is left.
func (r *Reader) Whole() bool { return !r.broken && len(r.rest) == 0 }
