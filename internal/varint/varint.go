// Package varint reads sequences of unsigned varints, as encoding/binary writes them. The packed columns of chunks, walks and ticks
// are such sequences. The package uses no table and no lock.
package varint

import "encoding/binary"

// Reader reads a sequence from its start. After an unreadable number all further numbers are zero, and Broken reports true.
type Reader struct {
	rest   []byte
	broken bool
}

// NewReader returns a reader of b. It does not change b.
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

// Byte returns the next byte.
func (r *Reader) Byte() byte {
	if len(r.rest) == 0 {
		return byte(r.fail())
	}
	c := r.rest[0]
	r.rest = r.rest[1:]
	return c
}

// Count returns the next number, which is at most the given one. A larger number counts as unreadable, so that broken bytes never make
// the caller allocate much memory.
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

// Rest returns the bytes that are not read yet.
func (r *Reader) Rest() []byte { return r.rest }

// Broken reports whether a number or byte was unreadable.
func (r *Reader) Broken() bool { return r.broken }

// Whole reports whether every read succeeded and no byte is left.
func (r *Reader) Whole() bool { return !r.broken && len(r.rest) == 0 }
