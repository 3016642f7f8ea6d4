package when

import (
	"strings"
	"time"
)

// input is a text and its words.
type input struct {
	text  string
	words []word
}

// word is a part of the text without blanks, and the byte at which it begins.
type word struct {
	text   string
	offset int
}

func split(text string) (words []word) {
	for at := 0; at < len(text); {
		if text[at] == ' ' || text[at] == '\t' {
			at++
			continue
		}
		end := at
		for end < len(text) && text[end] != ' ' && text[end] != '\t' {
			end++
		}
		words = append(words, word{text[at:end], at})
		at = end
	}
	return words
}

func (in *input) wrong(offset int, detail string) error { return &Error{in.text, offset, detail} }

// breakAtT makes two words of 2026-03-29T02:30.
func (in *input) breakAtT() {
	first := in.words[0]
	if n := len(time.DateOnly); len(first.text) > n+1 && isDigit(first.text[0]) && first.text[n]|0x20 == 't' {
		in.words = append([]word{{first.text[:n], first.offset}, {first.text[n+1:], first.offset + n + 1}}, in.words[1:]...)
	}
}

// The lengths of the units of an offset.
var units = map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// furthest is the longest offset: ten years, as the longest interval of a spec.
const furthest = 3660 * 24 * time.Hour

// fromNow reads now, or a sign and a duration with or without now before it.
func (in *input) fromNow(now time.Time) (time.Time, error) {
	var rest string
	from := in.words[0].offset
	for i, w := range in.words {
		if i > 0 && (i > 1 || in.words[0].text != "now") {
			return time.Time{}, in.wrong(w.offset, "nothing may follow here")
		}
		rest += w.text
	}
	if len(in.words) == 2 {
		from = in.words[1].offset - len("now") // as if the two words were one
	}
	if rest == "now" {
		return now.UTC(), nil
	}
	at := 0
	if strings.HasPrefix(rest, "now") {
		at = len("now")
	}
	if rest[at] != '+' && rest[at] != '-' {
		return time.Time{}, in.wrong(from+at, forms)
	}
	d, at, detail := duration(rest, at+1)
	if detail != "" {
		return time.Time{}, in.wrong(from+at, detail)
	}
	if strings.TrimPrefix(rest, "now")[0] == '-' {
		d = -d
	}
	return now.UTC().Add(d), nil
}

// duration reads numbers with units from a byte on. If detail is not empty, it says what is wrong at the byte stopped.
func duration(text string, at int) (d time.Duration, stopped int, detail string) {
	const form = "write a duration like 90s, 5m, 1h30m, 1d or 1w"
	if at == len(text) {
		return 0, at, form
	}
	for at < len(text) {
		begin, n := at, time.Duration(0)
		for at < len(text) && isDigit(text[at]) && at-begin < 9 {
			n = n*10 + time.Duration(text[at]-'0')
			at++
		}
		if at == begin || at == len(text) || units[text[at]] == 0 {
			return 0, at, form
		}
		if n > furthest/units[text[at]] || d+n*units[text[at]] > furthest {
			return 0, begin, "it is more than 3660 days away"
		}
		d += n * units[text[at]]
		at++
	}
	return d, at, ""
}

// wall reads a day and perhaps a time of the day, as a time in UTC. offset is the byte to which an error of Resolve points.
func (in *input) wall(now time.Time) (shown time.Time, offset int, err error) {
	day := in.words[0]
	date, ok := in.day(day.text, now)
	if !ok && isDigit(day.text[0]) {
		return shown, 0, in.wrong(day.offset, "it is not a date like 2026-03-29, in a year from 1970 to 2150")
	}
	if !ok {
		return shown, 0, in.wrong(day.offset, forms)
	}
	if len(in.words) == 1 {
		return date, day.offset, nil
	}
	clock := in.words[1]
	for _, form := range []string{"15:04", "15:04:05"} {
		at, err := time.Parse(form, clock.text)
		if err != nil || len(clock.text) != len(form) {
			continue
		}
		if len(in.words) > 2 {
			return shown, 0, in.wrong(in.words[2].offset, "nothing may follow here but a zone")
		}
		return date.Add(time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute + time.Duration(at.Second())*time.Second),
			clock.offset, nil
	}
	return shown, 0, in.wrong(clock.offset, "it is not a time of the day like 08:00 or 08:00:30")
}

// day returns the midnight, in UTC, of a date or of a day near now.
func (in *input) day(text string, now time.Time) (time.Time, bool) {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	switch text {
	case "today":
		return midnight, true
	case "tomorrow":
		return midnight.AddDate(0, 0, 1), true
	case "yesterday":
		return midnight.AddDate(0, 0, -1), true
	}
	date, err := time.Parse(time.DateOnly, text)
	return date, err == nil && len(text) == len(time.DateOnly) && date.Year() >= firstYear && date.Year() <= lastYear
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
