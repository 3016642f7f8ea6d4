// Package caret shows where in a text a mistake is, with a caret under it. It does no I/O.
package caret

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Mark is a text, the byte at which the mistake begins, and what is wrong. A negative offset means the whole text.
type Mark struct {
	Label  string // what the text is, such as --cron
	Text   string
	Offset int
	Detail string
}

// String returns three lines: the label and the text, the caret under the mistake, and the detail. A text that is longer than width columns is
// cut to the part around the mistake. A width of 0 means that nothing is cut.
//
//	--cron  0 25 * * *
//	          ^^
//	25 is not an hour: 0 to 23
func (m Mark) String(width int) string { return m.Lines(width) + "\n" + m.Detail }

// Lines returns the first two lines of String.
func (m Mark) Lines(width int) string {
	begin, end := m.span()
	line := m.Label
	if line != "" {
		line += "  "
	}
	indent := utf8.RuneCountInString(line)
	text, before, under := visible(m.Text[:begin]), visible(m.Text[:begin]), max(1, utf8.RuneCountInString(visible(m.Text[begin:end])))
	text += visible(m.Text[begin:])
	text, skipped := window(text, utf8.RuneCountInString(before), under, width-indent)
	at := indent + utf8.RuneCountInString(before) - skipped
	if width > 0 {
		under = min(under, max(1, width-at))
	}
	return line + text + "\n" + strings.Repeat(" ", at) + strings.Repeat("^", under)
}

// span returns the bytes of the mistake: from the offset to the end of the word.
func (m Mark) span() (begin, end int) {
	if m.Offset < 0 {
		return 0, len(m.Text)
	}
	begin = min(m.Offset, len(m.Text))
	for begin > 0 && begin < len(m.Text) && !utf8.RuneStart(m.Text[begin]) {
		begin--
	}
	end = begin
	for end < len(m.Text) && !strings.ContainsRune(" \t\n,;", rune(m.Text[end])) {
		end++
	}
	if end == begin && begin < len(m.Text) {
		end++
	}
	return begin, end
}

// visible replaces the characters that take no column, or that move the cursor, so that each rune takes one column.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n':
			return '⏎'
		case r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
			return '·'
		}
		return r
	}, text)
}

// window returns a part of the text that is at most width columns wide and contains the mistake, and the number of columns that it
// skips at the start. It returns the whole text if width is below 8.
func window(text string, at, under, width int) (shown string, skipped int) {
	runes := []rune(text)
	if width < 8 || len(runes) <= width {
		return text, 0
	}
	from := max(0, min(at-(width-min(under, width/2))/2, len(runes)-width))
	part := append([]rune(nil), runes[from:from+width]...)
	if from > 0 {
		part[0] = '…'
	}
	if from+width < len(runes) {
		part[width-1] = '…'
	}
	return string(part), from
}

var atByte = regexp.MustCompile(` \(at byte ([0-9]{1,6})\)$`)

// Of splits the detail of a server's error, such as "… (at byte 7)", into the text and the offset. The offset is -1 if the detail names
// none.
func Of(detail string) (text string, offset int) {
	found := atByte.FindStringSubmatchIndex(detail)
	if found == nil {
		return detail, -1
	}
	offset, err := strconv.Atoi(detail[found[2]:found[3]])
	if err != nil {
		return detail, -1
	}
	return detail[:found[0]], offset
}
