package calendar

import (
	"sync"
	"time"
)

// zone is a table of the offsets of one time zone from 1969 to 2151, in segments. From starts[i] (an instant in Unix seconds) until
// starts[i+1] the clock shows UTC plus offsets[i] seconds. Adjacent segments have different offsets. The first begins in the distant past.
//
// At starts[i] the clock jumps from starts[i]+offsets[i-1] to starts[i]+offsets[i]. The wall times in between are a gap if the clock
// jumps forward, and an overlap if it jumps back.
type zone struct {
	name    string
	starts  []int64
	offsets []int32
	buckets []uint16 // the segment at the beginning of each 2^24 seconds after bucketBase
	max     int32    // the largest offset
	min     int32    // the smallest offset

	data     []byte
	location func() *time.Location
}

const (
	bucketBase  = -1 << 25 // 1968-12-08
	bucketShift = 24
	longAgo     = -1 << 40
	farAhead    = 1 << 40
)

// newZone builds the table of a TZif file.
func newZone(name string, data []byte) (*zone, error) {
	first, list, err := readTZif(data)
	if err != nil {
		return nil, err
	}
	z := &zone{name: name, data: data, starts: []int64{longAgo}, offsets: []int32{first}}
	for _, t := range list {
		n := len(z.starts) - 1
		switch {
		case t.offset == z.offsets[n]:
		case t.at <= bucketBase:
			z.offsets[0] = t.offset
		default:
			z.starts = append(z.starts, t.at)
			z.offsets = append(z.offsets, t.offset)
		}
	}
	z.starts, z.offsets = append([]int64(nil), z.starts...), append([]int32(nil), z.offsets...)
	z.min, z.max = z.offsets[0], z.offsets[0]
	for _, o := range z.offsets {
		z.min, z.max = min(z.min, o), max(z.max, o)
	}
	i := 0
	for at := int64(bucketBase); at < (int64(maxDay)+400)*daySeconds; at += 1 << bucketShift {
		for i+1 < len(z.starts) && z.starts[i+1] <= at {
			i++
		}
		z.buckets = append(z.buckets, uint16(i))
	}
	z.location = sync.OnceValue(func() *time.Location {
		l, err := time.LoadLocationFromTZData(name, data)
		if err != nil {
			return time.FixedZone(name, int(first))
		}
		return l
	})
	return z, nil
}

// find returns the segment of an instant.
func (z *zone) find(at int64) int {
	b := (at - bucketBase) >> bucketShift
	if b < 0 {
		b = 0
	}
	if b >= int64(len(z.buckets)) {
		return len(z.starts) - 1
	}
	i := int(z.buckets[b])
	for i+1 < len(z.starts) && z.starts[i+1] <= at {
		i++
	}
	return i
}

// end returns the instant at which segment i ends.
func (z *zone) end(i int) int64 {
	if i+1 < len(z.starts) {
		return z.starts[i+1]
	}
	return farAhead
}

func (z *zone) offset(i int) int64 { return int64(z.offsets[i]) }

// wall returns the wall time of an instant.
func (z *zone) wall(at int64) wall { return at + z.offset(z.find(at)) }
