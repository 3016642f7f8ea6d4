package lease

import (
	"encoding/binary"
	"time"

	"github.com/carillonhq/carillon/dispatch/chunk"
	"github.com/carillonhq/carillon/dispatch/record"
	"github.com/carillonhq/carillon/internal/varint"
)

// packReady packs ticks as varint deltas, in their order. Ticks that came together take two or three bytes each.
func packReady(tries []record.Try) []byte {
	b := make([]byte, 0, 16+3*len(tries))
	var id, at int64
	var seq int32
	var attempt int16
	for i := range tries {
		t := &tries[i]
		now := t.At.Unix()
		delta := zigzag(t.Schedule-id) << 1
		if now == at && t.Seq == seq && t.Attempt == attempt {
			b = binary.AppendUvarint(b, delta|1)
		} else {
			b = binary.AppendUvarint(binary.AppendUvarint(b, delta), zigzag(now-at))
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(t.Seq)), uint64(t.Attempt))
		}
		id, at, seq, attempt = t.Schedule, now, t.Seq, t.Attempt
	}
	return b
}

func unpackReady(b []byte, n int) ([]record.Try, error) {
	r := varint.NewReader(b)
	tries := make([]record.Try, n)
	var last record.Try
	var at int64
	for i := range tries {
		delta := r.Next()
		last.Schedule += unzigzag(delta >> 1)
		if delta&1 == 0 {
			at += unzigzag(r.Next())
			last.At, last.Seq, last.Attempt = time.Unix(at, 0).UTC(), int32(r.Next()), int16(r.Next())
		}
		tries[i] = last
	}
	if !r.Whole() {
		return nil, chunk.ErrBroken
	}
	return tries, nil
}

// zigzag encodes a signed number so that one near zero of either sign becomes a small unsigned number.
func zigzag(n int64) uint64 { return uint64(n<<1) ^ uint64(n>>63) }

func unzigzag(n uint64) int64 { return int64(n>>1) ^ -int64(n&1) }

// leaseForm is the first byte of a packed lease. The leases of an earlier version, which chunk.UnpackTries reads, begin with a count,
// and none is empty.
const leaseForm = 0

func packLease(tries []record.Try) []byte {
	b := binary.AppendUvarint([]byte{leaseForm}, uint64(len(tries)))
	return append(b, packReady(tries)...)
}

func unpackLease(b []byte) ([]record.Try, error) {
	if len(b) == 0 || b[0] != leaseForm {
		return chunk.UnpackTries(b)
	}
	r := varint.NewReader(b[1:])
	n := r.Count(mostLeased)
	if r.Broken() {
		return nil, chunk.ErrBroken
	}
	return unpackReady(r.Rest(), n)
}
