package calendar

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

var errTZif = errors.New("not a TZif file of version 2 or later")

// maxOffset is the largest offset of a clock from UTC in seconds. RFC 8536 has none above 26 hours.
const maxOffset = 26 * 3600

// transition is a change of a zone's offset from UTC: its instant and the new offset, both in seconds.
type transition struct {
	at     int64
	offset int32
}

// readTZif parses a TZif file (RFC 8536, version 2 or later). first is the offset before the first transition. list has the file's
// transitions, and those of its footer's rule up to the end of maxYear.
func readTZif(data []byte) (first int32, list []transition, err error) {
	skip, _, err := tzifBlock(data, 4)
	if err != nil {
		return 0, nil, err
	}
	body := data[skip:]
	size, counts, err := tzifBlock(body, 8)
	if err != nil {
		return 0, nil, err
	}
	times, types := counts[3], counts[4]
	b := body[44:]
	at, kind, infos := b[:times*8], b[times*8:times*9], b[times*9:]
	if types == 0 {
		return 0, nil, errTZif
	}
	offset := func(i int) int32 { return int32(binary.BigEndian.Uint32(infos[i*6:])) }
	first = offset(0)
	for i := range times {
		if int(kind[i]) >= types {
			return 0, nil, errTZif
		}
		t := transition{int64(binary.BigEndian.Uint64(at[i*8:])), offset(int(kind[i]))}
		if i > 0 && t.at <= list[i-1].at || max(t.offset, -t.offset) > maxOffset {
			return 0, nil, errTZif
		}
		list = append(list, t)
	}
	footer := strings.Trim(string(body[size:]), "\n")
	list, err = extend(list, first, footer)
	return first, list, err
}

// tzifBlock returns the size of a header with its data block, and the header's six counts (isut, isstd, leap, time, type, char). width is
// the size of a time in bytes.
func tzifBlock(data []byte, width int) (size int, counts [6]int, err error) {
	if len(data) < 44 || string(data[:4]) != "TZif" || data[4] < '2' {
		return 0, counts, errTZif
	}
	for i := range counts {
		counts[i] = int(binary.BigEndian.Uint32(data[20+4*i:]))
		if counts[i] > 1<<16 {
			return 0, counts, errTZif
		}
	}
	size = 44 + counts[3]*(width+1) + counts[4]*6 + counts[5] + counts[2]*(width+4) + counts[1] + counts[0]
	if len(data) < size {
		return 0, counts, errTZif
	}
	return size, counts, nil
}

// extend appends the transitions of a footer's rule after the last listed one.
func extend(list []transition, first int32, footer string) ([]transition, error) {
	if footer == "" {
		return list, nil
	}
	rule, err := parsePosix(footer)
	if err != nil {
		return nil, err
	}
	last := int64(-1 << 62)
	if n := len(list); n > 0 {
		last = list[n-1].at
	}
	if !rule.saves {
		if n := len(list); n == 0 && first != rule.standard || n > 0 && list[n-1].offset != rule.standard {
			return nil, fmt.Errorf("footer %q does not continue its transitions", footer)
		}
		return list, nil
	}
	var more []transition
	for year := minYear - 10; year <= maxYear+1; year++ {
		more = append(more,
			transition{rule.begins.at(year) - int64(rule.standard), rule.saving},
			transition{rule.ends.at(year) - int64(rule.saving), rule.standard})
	}
	sort.SliceStable(more, func(i, j int) bool { return more[i].at < more[j].at })
	for _, t := range more {
		if t.at > last {
			list = append(list, t)
		}
	}
	return list, nil
}

// posix is the rule of a POSIX TZ string with the extensions of RFC 8536. Offsets are in seconds east of UTC.
type posix struct {
	standard, saving int32
	saves            bool
	begins, ends     yearly
}

// yearly is a wall time once a year. Its day is a weekday of a month ('M'), a day of the year without 29 February ('J'), or a day of the
// year with it ('D').
type yearly struct {
	form             byte
	month, week, day int
	seconds          int
}

// at returns the wall time in a year.
func (y yearly) at(year int) wall {
	var day int
	switch y.form {
	case 'J':
		day = dayNumber(year, 1, 1) + y.day - 1
		if isLeap(year) && y.day >= 60 {
			day++
		}
	case 'D':
		day = dayNumber(year, 1, 1) + y.day
	default:
		day = dayNumber(year, y.month, 1)
		day += floorMod(y.day-weekday(day), 7) + 7*(y.week-1)
		if day >= dayNumber(year, y.month, 1)+daysIn(year, y.month) {
			day -= 7
		}
	}
	return wall(day)*daySeconds + wall(y.seconds)
}

func parsePosix(text string) (posix, error) {
	p := posixText{rest: text}
	var r posix
	p.name()
	r.standard = -int32(p.clock())
	if p.rest == "" {
		return r, p.err(text)
	}
	r.saves = true
	p.name()
	r.saving = r.standard + 3600
	if p.rest != "" && p.rest[0] != ',' {
		r.saving = -int32(p.clock())
	}
	r.begins = p.yearly()
	r.ends = p.yearly()
	return r, p.err(text)
}

type posixText struct {
	rest string
	bad  bool
}

func (p *posixText) err(text string) error {
	if p.bad || p.rest != "" {
		return fmt.Errorf("%q is not a POSIX time zone", text)
	}
	return nil
}

func (p *posixText) name() {
	n := strings.IndexFunc(p.rest, func(r rune) bool { return strings.ContainsRune("+-,0123456789", r) })
	if strings.HasPrefix(p.rest, "<") {
		n = strings.IndexByte(p.rest, '>') + 1
	}
	if n < 0 {
		n = len(p.rest)
	}
	p.bad = p.bad || n < 3
	p.rest = p.rest[n:]
}

func (p *posixText) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *posixText) number() int {
	n := 0
	for n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9' {
		n++
	}
	v, err := strconv.Atoi(p.rest[:n])
	p.bad = p.bad || err != nil || v > 1000
	p.rest = p.rest[n:]
	return v
}

// clock parses [+-]hh[:mm[:ss]], and returns seconds.
func (p *posixText) clock() int {
	sign := 1
	if p.take('-') {
		sign = -1
	} else {
		p.take('+')
	}
	v := p.number() * 3600
	if p.take(':') {
		v += p.number() * 60
	}
	if p.take(':') {
		v += p.number()
	}
	return sign * v
}

func (p *posixText) yearly() yearly {
	y := yearly{form: 'D', seconds: 2 * 3600}
	p.bad = p.bad || !p.take(',')
	switch {
	case p.take('M'):
		y.form = 'M'
		y.month = p.number()
		p.bad = !p.take('.') || p.bad
		y.week = p.number()
		p.bad = !p.take('.') || p.bad
		y.day = p.number()
		p.bad = p.bad || y.month < 1 || y.month > 12 || y.week < 1 || y.week > 5 || y.day > 6
	case p.take('J'):
		y.form = 'J'
		y.day = p.number()
	default:
		y.day = p.number()
	}
	if p.take('/') {
		y.seconds = p.clock()
	}
	return y
}
