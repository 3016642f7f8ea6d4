// Package events reads streams of server-sent events (HTML Living Standard, section 9.2).
package events

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"strings"
)

// Event is one event of a stream.
type Event struct {
	Name string // "message" if the stream does not name it
	ID   string // of the last event that had one
	Data string
}

// longestLine is how many bytes a line may have.
const longestLine = 1 << 20

// Read returns the events of a stream until it ends. It ignores an event that the end cuts off. An error comes once and ends the loop.
func Read(r io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 4<<10), longestLine)
		lines.Split(endOfLine())
		var event Event
		var data []string
		for lines.Scan() {
			line := lines.Text()
			if line == "" {
				if data != nil {
					event.Data = strings.Join(data, "\n")
					if event.Name == "" {
						event.Name = "message"
					}
					if !yield(event, nil) {
						return
					}
				}
				event.Name, data = "", nil
				continue
			}
			field, value, _ := strings.Cut(line, ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "event":
				event.Name = value
			case "data":
				data = append(data, value)
			case "id":
				if !strings.Contains(value, "\x00") {
					event.ID = value
				}
			}
		}
		if err := lines.Err(); err != nil {
			if errors.Is(err, bufio.ErrTooLong) {
				err = errors.New("a line of the stream has more than 1 MiB")
			}
			yield(Event{}, err)
		}
	}
}

// endOfLine returns a function that splits at \n, \r\n and \r. The \n after a \r is dropped when it comes, because waiting for it would
// hold back the last event.
func endOfLine() bufio.SplitFunc {
	afterCR := false
	return func(data []byte, atEOF bool) (advance int, token []byte, err error) {
		begin := 0
		if afterCR && len(data) > 0 && data[0] == '\n' {
			begin = 1
		}
		for i := begin; i < len(data); i++ {
			if c := data[i]; c == '\n' || c == '\r' {
				afterCR = c == '\r'
				return i + 1, data[begin:i], nil
			}
		}
		if atEOF {
			return len(data), nil, nil
		}
		return 0, nil, nil
	}
}
