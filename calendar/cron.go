package calendar

import (
	"strings"
	"time"
)

// maxCron is the longest cron expression, in bytes.
const maxCron = 512

// macros maps Vixie cron's names of expressions to the expressions.
var macros = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

// cronReading is a parsed cron expression.
type cronReading struct {
	fields           fields
	every            time.Duration // of @every; zero for all others
	hashed           bool
	domStar, dowStar bool // the field begins with a star
	domStep, dowStep bool // the field begins with a star and has a step
	bothDays         bool // day of month and day of week are both restricted
}

// parseCron parses a macro or a cron expression of five, six (seconds first) or seven fields (seconds first, year last). An optional
// CRON_TZ= or TZ= before it must name the zone. If and is true, day of month and day of week must both match; otherwise Vixie's rule
// applies.
func parseCron(text, zone, identity string, and bool) (cronReading, []Fault) {
	var r cronReading
	var faults []Fault
	if len(text) > maxCron {
		return r, []Fault{{Code: "too_long", Detail: "a cron expression has at most 512 bytes", Position: maxCron}}
	}
	words, at := splitWords(text)
	if len(words) > 0 {
		name, found := strings.CutPrefix(words[0], "CRON_TZ=")
		if !found {
			name, found = strings.CutPrefix(words[0], "TZ=")
		}
		if found && name != zone {
			return r, []Fault{{Code: "timezone_mismatch", Detail: "the expression names another time zone than the spec: " + name, Position: at[0]}}
		}
		if found {
			words, at = words[1:], at[1:]
		}
	}
	if len(words) == 0 {
		return r, []Fault{{Code: "cron_syntax", Detail: "the expression has no fields", Position: 0}}
	}
	if strings.HasPrefix(words[0], "@") {
		return parseMacro(words, at)
	}
	var list []field
	five := []field{minuteField, hourField, domField, monthField, weekdayField}
	switch len(words) {
	case 5:
		list = five
		r.fields.Seconds = 1
	case 6:
		list = append([]field{secondField}, five...)
	case 7:
		list = append(append([]field{secondField}, five...), yearField)
	default:
		return r, []Fault{{Code: "cron_syntax", Detail: "a cron expression has 5 fields, 6 with seconds first or 7 with a year last", Position: at[min(len(at)-1, 7)]}}
	}
	if len(words) < 7 {
		r.fields.Years = allYears
	}
	var dom, dow string
	for i, f := range list {
		p := fieldText{field: f, text: words[i], offset: at[i], identity: identity, out: &r.fields, faults: &faults}
		star := p.parse()
		r.hashed = r.hashed || p.hashed
		switch f.name {
		case domField.name:
			r.domStar, dom = star, words[i]
		case weekdayField.name:
			r.dowStar, dow = star, words[i]
		}
	}
	r.domStep, r.dowStep = r.domStar && len(dom) > 1, r.dowStar && len(dow) > 1
	r.bothDays = !r.domStar && !r.dowStar
	r.fields.Or = r.bothDays && !and
	r.fields = r.fields.normal()
	return r, faults
}

func parseMacro(words []string, at []int) (cronReading, []Fault) {
	name := strings.ToLower(words[0])
	if name == "@every" && len(words) == 2 {
		every, _, err := parseDuration(words[1])
		if err != nil {
			return cronReading{}, []Fault{{Code: "duration_syntax", Detail: err.Error(), Position: at[1]}}
		}
		if every < time.Second || every > maxEvery {
			return cronReading{}, []Fault{{Code: "every_out_of_range", Detail: "@every takes 1s to 10 years", Position: at[1]}}
		}
		return cronReading{every: every}, nil
	}
	text, ok := macros[name]
	if !ok || len(words) > 1 {
		return cronReading{}, []Fault{{Code: "cron_syntax", Detail: "not a macro that cron knows: " + strings.Join(words, " "), Position: at[0]}}
	}
	return parseCron(text, "", "", false)
}

// splitWords splits a text at spaces and tabs. at has the offset of each word.
func splitWords(text string) (words []string, at []int) {
	begin := -1
	for i := 0; i <= len(text); i++ {
		blank := i == len(text) || text[i] == ' ' || text[i] == '\t'
		if blank && begin >= 0 {
			words, at = append(words, text[begin:i]), append(at, begin)
			begin = -1
		}
		if !blank && begin < 0 {
			begin = i
		}
	}
	return words, at
}
