package calendar

import (
	"fmt"
	"hash/fnv"
	"strings"
)

// field describes one field of a cron expression, or one member of a calendar.
type field struct {
	name     string // as JSON names it
	min, max int
	hashMax  int // the largest value of H; 0: H is not allowed
	names    []string
}

var (
	monthNames = strings.Fields("january february march april may june july august september october november december")
	dayNames   = strings.Fields("sunday monday tuesday wednesday thursday friday saturday")

	secondField  = field{name: "second", min: 0, max: 59, hashMax: 59}
	minuteField  = field{name: "minute", min: 0, max: 59, hashMax: 59}
	hourField    = field{name: "hour", min: 0, max: 23, hashMax: 23}
	domField     = field{name: "day_of_month", min: 1, max: 31, hashMax: 28}
	monthField   = field{name: "month", min: 1, max: 12, hashMax: 12, names: monthNames}
	weekdayField = field{name: "day_of_week", min: 0, max: 7, hashMax: 6, names: dayNames}
	yearField    = field{name: "year", min: minYear, max: lastYear}
)

// fieldText parses the text of one field into out.
type fieldText struct {
	field
	text     string
	offset   int // of text in the whole expression
	identity string
	out      *fields
	faults   *[]Fault
	hashed   bool
}

// parse parses the field, and reports whether it begins with a star.
func (p *fieldText) parse() (star bool) {
	if p.text == "" {
		p.fault(0, "field_empty", "%s is empty", p.name)
		return false
	}
	at := 0
	for part := range strings.SplitSeq(p.text, ",") {
		p.part(part, at)
		at += len(part) + 1
	}
	return p.text[0] == '*' || p.text[0] == '?'
}

func (p *fieldText) fault(at int, code, format string, args ...any) {
	*p.faults = append(*p.faults, Fault{Code: code, Detail: fmt.Sprintf(format, args...), Position: p.offset + at})
}

// part parses one entry of the field's list.
func (p *fieldText) part(text string, at int) {
	if text == "" {
		p.fault(at, "field_empty", "%s has an empty entry in its list", p.name)
		return
	}
	upper := strings.ToUpper(text)
	if p.special(upper, at) {
		return
	}
	body, stepText, stepped := strings.Cut(upper, "/")
	step := 1
	if stepped {
		var ok bool
		if step, ok = p.step(stepText, at+len(body)+1); !ok {
			return
		}
	}
	size := p.size()
	switch {
	case body == "*" || body == "?":
		p.fill(p.min, p.min+size-1, step)
	case body == "H" || strings.HasPrefix(body, "H("):
		p.hash(body, at, step, stepped)
	default:
		low, high, ranged := strings.Cut(body, "-")
		a, ok := p.value(low, at)
		if !ok {
			return
		}
		if !ranged {
			b := a
			if stepped {
				b = p.min + size - 1
				a %= size + p.min // 7 is also Sunday
			}
			p.fill(a, b, step)
			return
		}
		b, ok := p.value(high, at+len(low)+1)
		if !ok {
			return
		}
		if b < a {
			if p.name == yearField.name {
				p.fault(at, "range_reversed", "years do not wrap: %s", text)
				return
			}
			b += size
		}
		p.fill(a, b, step)
	}
}

// size returns the number of values of the field. A week has 7 values, because 7 is also Sunday.
func (p *fieldText) size() int {
	if p.name == weekdayField.name {
		return 7
	}
	return p.max - p.min + 1
}

// fill adds low, low+step, … up to high. Values above the field's maximum wrap around to its minimum.
func (p *fieldText) fill(low, high, step int) {
	size := p.size()
	for v := low; v <= high; v += step {
		p.put(p.min + (v-p.min)%size)
	}
}

func (p *fieldText) put(v int) {
	switch p.name {
	case "second":
		p.out.Seconds |= 1 << v
	case "minute":
		p.out.Minutes |= 1 << v
	case "hour":
		p.out.Hours |= 1 << v
	case "day_of_month":
		p.out.Days |= 1 << v
	case "month":
		p.out.Months |= 1 << v
	case "day_of_week":
		p.out.Week |= 1 << v
	case "year":
		p.out.Years[(v-minYear)/64] |= 1 << ((v - minYear) % 64)
	}
}

// value parses a number or a name.
func (p *fieldText) value(text string, at int) (int, bool) {
	if v, ok := number(text); ok {
		if v < p.min || v > p.max {
			p.fault(at, "field_out_of_range", "%s %s is not from %d to %d", p.name, text, p.min, p.max)
			return 0, false
		}
		return v, true
	}
	low := strings.ToLower(text)
	for i, name := range p.names {
		if low == name || low == name[:3] {
			return p.min + i, true
		}
	}
	p.fault(at, "field_syntax", "%s does not understand %q", p.name, text)
	return 0, false
}

func number(text string) (int, bool) {
	if text == "" || len(text) > 6 {
		return 0, false
	}
	v := 0
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int(c-'0')
	}
	return v, true
}

func (p *fieldText) step(text string, at int) (int, bool) {
	v, ok := number(text)
	switch {
	case !ok:
		p.fault(at, "field_syntax", "%s has a step that is not a number: %q", p.name, text)
	case v == 0:
		p.fault(at, "step_zero", "%s has a step of 0", p.name)
	case v >= p.size():
		p.fault(at, "step_too_large", "%s has a step of %d, beyond its range of %d", p.name, v, p.size())
	default:
		return v, true
	}
	return 0, false
}

// hash adds the value of H, which the schedule's identity determines. With a step, the value is the first of a series.
func (p *fieldText) hash(body string, at, step int, stepped bool) {
	if p.hashMax == 0 {
		p.fault(at, "field_syntax", "%s cannot be hashed", p.name)
		return
	}
	low, high := p.min, p.hashMax
	if body != "H" {
		inner, closed := strings.CutSuffix(body[2:], ")")
		a, b, ranged := strings.Cut(inner, "-")
		if !closed || !ranged {
			p.fault(at, "field_syntax", "%s does not understand %q", p.name, body)
			return
		}
		var ok1, ok2 bool
		low, ok1 = p.value(a, at+2)
		high, ok2 = p.value(b, at+3+len(a))
		if !ok1 || !ok2 {
			return
		}
		if high < low {
			p.fault(at, "range_reversed", "%s has a hashed range that is reversed: %q", p.name, body)
			return
		}
	}
	h := fnv.New64a()
	h.Write([]byte(p.name + "\x00" + p.identity))
	sum := h.Sum64()
	sum ^= sum >> 32
	p.hashed = true
	if !stepped {
		v := low + int(sum%uint64(high-low+1))
		p.fill(v, v, 1)
		return
	}
	p.fill(low+int(sum%uint64(min(step, high-low+1))), high, step)
}

// special parses the forms that are not sets of values: L, L-n, LW and nW in a month; n#k and nL in a week.
func (p *fieldText) special(upper string, at int) bool {
	switch p.name {
	case domField.name:
		return p.specialDay(upper, at)
	case weekdayField.name:
		return p.specialWeekday(upper, at)
	}
	return false
}

func (p *fieldText) specialDay(upper string, at int) bool {
	if upper == "L" {
		p.out.Last |= 1
		return true
	}
	if upper == "LW" {
		p.out.Nearest |= 1
		return true
	}
	if rest, ok := strings.CutPrefix(upper, "L-"); ok {
		n, ok := number(rest)
		if !ok || n > 30 {
			p.fault(at, "field_out_of_range", "%s L-n takes n from 0 to 30, not %q", p.name, rest)
			return true
		}
		p.out.Last |= 1 << n
		return true
	}
	if rest, ok := strings.CutSuffix(upper, "W"); ok {
		n, ok := number(rest)
		if !ok || n < 1 || n > 31 {
			p.fault(at, "field_out_of_range", "%s nW takes n from 1 to 31, not %q", p.name, rest)
			return true
		}
		p.out.Nearest |= 1 << n
		return true
	}
	return false
}

func (p *fieldText) specialWeekday(upper string, at int) bool {
	if name, kth, ok := strings.Cut(upper, "#"); ok {
		day, ok := p.value(name, at)
		if !ok {
			return true
		}
		k, ok := number(kth)
		if !ok || k < 1 || k > 5 {
			p.fault(at+len(name)+1, "field_out_of_range", "%s n#k takes k from 1 to 5, not %q", p.name, kth)
			return true
		}
		p.out.Nth[k-1] |= 1 << (day % 7)
		return true
	}
	if upper == "L" {
		p.fault(at, "field_syntax", "%s takes L after a day, as in 5L; L alone is ambiguous", p.name)
		return true
	}
	if name, ok := strings.CutSuffix(upper, "L"); ok && !strings.Contains(name, "-") {
		if day, ok := p.value(name, at); ok {
			p.out.Back[0] |= 1 << (day % 7)
		}
		return true
	}
	return false
}
