// Package ident turns the keys of rows into the opaque ids that clients see, and back. An id is one AES block over
// the key: the same before and after a crash or a restore, never sequential, and of no use to another installation.
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

// Codec makes and reads ids under one key. It is safe for concurrent use.
type Codec struct{ block cipher.Block }

// TickKey names one tick of one tenant: its schedule, its nominal time (whole seconds) and 0 for a timed tick or the
// number of a manual one (below 2^24).
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
	schedulePrefix = "sch_"
	tickPrefix     = "tick_"
	workPrefix     = "op_"
	encodedLength  = 26
)

var (
	scheduleMark = []byte("schedule")
	workMark     = []byte("operated")
)

// New returns a codec; the key has KeySize bytes.
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

// ParseSchedule reads an id of Schedule's; ok is false for anything else.
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
	copy(b[8:], workMark)
	return c.seal(workPrefix, &b)
}

// ParseOperation reads an id of Operation's; ok is false for anything else.
func (c Codec) ParseOperation(s string) (id int64, ok bool) {
	b, ok := c.open(workPrefix, s)
	if !ok || !bytes.Equal(b[8:], workMark) {
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

// ParseTick reads an id of Tick's. A string that is none mostly gives the key of no tick, or ok false.
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
	if err != nil || encoding.EncodeToString(raw) != text { // the last character has bits to spare
		return b, false
	}
	c.block.Decrypt(b[:], raw)
	return b, true
}
