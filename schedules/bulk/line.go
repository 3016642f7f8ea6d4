package bulk

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/carillonhq/carillon/internal/fault"
)

// lineReader reads the lines of a body and counts them.
type lineReader struct {
	in   *bufio.Reader
	long []byte
	line int
}

func newLineReader(body io.Reader) lineReader {
	return lineReader{in: bufio.NewReaderSize(body, 64<<10)}
}

var errLongLine = fault.New(413, "line_too_large", "a line has at most %d bytes", longestLine)

// read returns the next line without its end, or errLongLine if the line is too long to be kept.
func (r *lineReader) read() (text []byte, err error) {
	r.long = r.long[:0]
	tooLong := false
	for {
		part, err := r.in.ReadSlice('\n')
		whole := err == nil || errors.Is(err, io.EOF)
		if !whole && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if errors.Is(err, io.EOF) && len(part) == 0 && len(r.long) == 0 && !tooLong {
			return nil, io.EOF
		}
		if tooLong = tooLong || len(r.long)+len(part) > longestLine; tooLong {
			r.long = r.long[:0]
		} else if !whole || len(r.long) > 0 {
			r.long = append(r.long, part...)
			part = r.long
		}
		if !whole {
			continue
		}
		r.line++
		if tooLong {
			return nil, errLongLine
		}
		return bytes.TrimSuffix(part, []byte("\n")), nil
	}
}
