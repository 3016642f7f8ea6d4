package caret_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/carillonhq/carillon/cmd/carillon/cli/caret"
)

func TestTheCaretIsUnderTheMistake(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		mark  caret.Mark
		width int
		want  string
	}{
		{"a field of a cron", caret.Mark{"--cron", "0 25 * * *", 2, "25 is not an hour"}, 80, "--cron  0 25 * * *\n          ^^\n25 is not an hour"},
		{"the whole text", caret.Mark{"--zone", "Berlin", -1, "no zone"}, 80, "--zone  Berlin\n        ^^^^^^\nno zone"},
		{"the end", caret.Mark{"", "0 8 * *", 7, "a day of the week is missing"}, 80, "0 8 * *\n       ^\na day of the week is missing"},
		{"an empty text", caret.Mark{"--cron", "", -1, "empty"}, 80, "--cron  \n        ^\nempty"},
		{"beyond the end", caret.Mark{"", "ab", 9, "x"}, 80, "ab\n  ^\nx"},
		{"a blank", caret.Mark{"", "a b", 1, "x"}, 80, "a b\n ^\nx"},
		{"after letters of two bytes", caret.Mark{"", "ää 25 *", 5, "x"}, 80, "ää 25 *\n   ^^\nx"},
		{"within a letter of two bytes", caret.Mark{"", "ä", 1, "x"}, 80, "ä\n^\nx"},
		{"lines", caret.Mark{"--rrule", "DTSTART:1\nRRULE:FREQ=X", 10, "x"}, 80, "--rrule  DTSTART:1⏎RRULE:FREQ=X\n                   ^^^^^^^^^^^^\nx"},
		{"a long text", caret.Mark{"", strings.Repeat("1,", 50) + "x" + strings.Repeat(",2", 50), 100, "no number"}, 21,
			"…,1,1,1,1,x,2,2,2,2,…\n          ^\nno number"},
	} {
		if got := c.mark.String(c.width); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestPlacesOfTheServer(t *testing.T) {
	t.Parallel()
	if text, offset := caret.Of("25 is not an hour (at byte 2)"); text != "25 is not an hour" || offset != 2 {
		t.Errorf("got %q, %d", text, offset)
	}
	if text, offset := caret.Of("no such calendar"); text != "no such calendar" || offset != -1 {
		t.Errorf("got %q, %d", text, offset)
	}
}

// FuzzMark checks that no text and no offset makes it panic, and that a line fits the width.
func FuzzMark(f *testing.F) {
	f.Add("0 25 * * *", 2, 80)
	f.Add("ä\xff\n", 1, 9)
	f.Fuzz(func(t *testing.T, text string, offset, width int) {
		width = 20 + width&0xff
		lines := strings.Split(caret.Mark{"--cron", text, offset, "x"}.String(width), "\n")
		if len(lines) != 3 || strings.Trim(lines[1], " ^") != "" || !strings.Contains(lines[1], "^") {
			t.Fatalf("got %q", lines)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > width+1 {
				t.Fatalf("a line has %d columns of %d: %q", n, width, line)
			}
		}
	})
}
