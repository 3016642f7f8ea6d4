// Package ident encodes row keys as the opaque ids that clients see, and decodes them. An id is the row's key encrypted as one AES
// block: it stays the same after a crash or a restore, is never sequential, and means nothing to another installation. The package
// uses no table and no lock.
package ident

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// KeySize is the length of a codec's key in bytes.
const KeySize = 16

// Codec encodes and decodes ids with one key. It is safe for concurrent use.
type Codec struct{ block cipher.Block }

// TickKey names one tick of one tenant: its schedule, its nominal time in whole seconds, and a number below 2^24. The number is 0 for
// a timed tick and counts the manual ones.
type TickKey struct {
	Schedule int64
	At       time.Time
	Seq      int32
}

// Compare orders keys by schedule, time and seq.
func (k TickKey) Compare(o TickKey) int {
	switch {
	case k.Schedule != o.Schedule:
		return sign(k.Schedule < o.Schedule)
	case !k.At.Equal(o.At):
		return sign(k.At.Before(o.At))
	case k.Seq != o.Seq:
		return sign(k.Seq < o.Seq)
	}
	return 0
}

func sign(less bool) int {
	if less {
		return -1
	}
	return 1
}

var encoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const (
	schedulePrefix  = "sch_"
	tickPrefix      = "tick_"
	operationPrefix = "op_"
	encodedLength   = 26
)

// The second half of an id's block. It tells one kind of id from another, and a true id from a random one.
var (
	scheduleMark  = []byte("schedule")
	operationMark = []byte("operated")
)

// New returns a codec for a key of KeySize bytes.
func New(key []byte) (Codec, error) {
	if len(key) != KeySize {
		return Codec{}, fmt.Errorf("id key has %d bytes, not %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	return Codec{block}, err
}

// Schedule returns the id of a schedule.
func (c Codec) Schedule(id int64) string {
	var b [aes.BlockSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(id))
	copy(b[8:], scheduleMark)
	return c.seal(schedulePrefix, &b)
}

// ParseSchedule decodes an id made by Schedule; ok is false for any other text.
func (c Codec) ParseSchedule(s string) (id int64, ok bool) {
	b, ok := c.open(schedulePrefix, s)
	if !ok || !bytes.Equal(b[8:], scheduleMark) {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b[:])), true
}

// Operation returns the id of an operation.
func (c Codec) Operation(id int64) string {
	var b [aes.BlockSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(id))
	copy(b[8:], operationMark)
	return c.seal(operationPrefix, &b)
}

// ParseOperation decodes an id made by Operation; ok is false for any other text.
func (c Codec) ParseOperation(s string) (id int64, ok bool) {
	b, ok := c.open(operationPrefix, s)
	if !ok || !bytes.Equal(b[8:], operationMark) {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b[:])), true
}

// Tick returns the id of a tick.
func (c Codec) Tick(k TickKey) string {
	var b [aes.BlockSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(k.Schedule))
	binary.BigEndian.PutUint64(b[8:], uint64(k.At.Unix())<<24|uint64(k.Seq)&0xffffff)
	return c.seal(tickPrefix, &b)
}

// ParseTick decodes an id made by Tick. For most other texts ok is false; the rest decode to a key without a tick.
func (c Codec) ParseTick(s string) (k TickKey, ok bool) {
	b, ok := c.open(tickPrefix, s)
	if !ok {
		return k, false
	}
	rest := binary.BigEndian.Uint64(b[8:])
	k.Schedule = int64(binary.BigEndian.Uint64(b[:]))
	k.At = time.Unix(int64(rest>>24), 0).UTC()
	k.Seq = int32(rest & 0xffffff)
	const year9999 = 253402300800
	return k, k.Schedule > 0 && k.At.Unix() < year9999
}

func (c Codec) seal(prefix string, b *[aes.BlockSize]byte) string {
	c.block.Encrypt(b[:], b[:])
	return prefix + encoding.EncodeToString(b[:])
}

func (c Codec) open(prefix, s string) (b [aes.BlockSize]byte, ok bool) {
	text, found := strings.CutPrefix(s, prefix)
	if !found || len(text) != encodedLength {
		return b, false
	}
	raw, err := encoding.DecodeString(text)
	if err != nil || encoding.EncodeToString(raw) != text { // the last character has unused bits, which must be zero
		return b, false
	}
	c.block.Decrypt(b[:], raw)
	return b, true
}
