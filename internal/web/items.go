package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"
)

// Items writes a list item by item: {"items": […]}. It never holds a whole long answer in memory.
type Items struct {
	c       echo.Context
	one     bytes.Buffer // the current item
	encoder *json.Encoder
	out     []byte // bytes that are not sent yet
	some    bool   // the list has an item
	turn    turn   // begins when the answer becomes long
}

// flushAt is how many bytes Items buffers before it sends them. A shorter answer is sent in one piece, with its length.
const flushAt = 64 << 10

// NewItems begins a list.
func NewItems(c echo.Context) *Items {
	w := &Items{c: c, turn: turn{account: accountOf(c.Request().Context())}, out: append(make([]byte, 0, 4<<10), `{"items":[`...)}
	w.encoder = json.NewEncoder(&w.one)
	w.encoder.SetEscapeHTML(false)
	return w
}

// Add writes one item, like Marshal.
func (w *Items) Add(v any) error {
	if w.c.Response().Committed {
		if err := w.turn.begin(w.c.Request().Context()); err != nil {
			return fmt.Errorf("wait to write the answer: %w", err)
		}
		defer w.turn.end()
	}
	raws, err := w.encode(v)
	if err != nil {
		return fmt.Errorf("write an item: %w", err)
	}
	if w.some {
		w.out = append(w.out, ',')
	}
	w.some = true
	if w.out, err = appendUnmarked(w.out, bytes.TrimSuffix(w.one.Bytes(), []byte("\n")), raws); err != nil {
		return err
	}
	if len(w.out) < flushAt {
		return nil
	}
	return w.flush()
}

// LongRaws is implemented by items with long Raw members. Items copies those members without encoding/json, which is faster.
type LongRaws interface{ LongRaws() []*Raw }

// encode writes an item as JSON, with a reference in place of each long member. It returns the long members in their order.
func (w *Items) encode(v any) (raws []Raw, err error) {
	w.one.Reset()
	if long, ok := v.(LongRaws); ok {
		for _, r := range long.LongRaws() {
			if len(*r) <= len(reference)+4 {
				continue
			}
			was := *r
			defer func() { *r = was }()
			*r, raws = strconv.AppendInt(bytes.Clone(reference), int64(len(raws)), 10), append(raws, was)
		}
	}
	return raws, w.encoder.Encode(v)
}

func (w *Items) flush() error {
	w.turn.end() // the client may be slow
	if r := w.c.Response(); !r.Committed {
		r.Header().Set(echo.HeaderContentType, "application/json")
		r.WriteHeader(http.StatusOK)
	}
	_, err := w.c.Response().Write(w.out)
	w.out = w.out[:0]
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// Fail ends an incomplete list. If a part of it is already sent, Fail closes the connection, so that the client does not mistake the
// part for the whole. Otherwise it returns err.
func (w *Items) Fail(err error) error {
	if !w.c.Response().Committed {
		return err
	}
	Note(w.c, slog.String("cut", err.Error()))
	panic(http.ErrAbortHandler)
}

// End writes the rest of the answer. members is JSON text for further members, such as `,"next_cursor":null`.
func (w *Items) End(members string) error {
	w.out = append(append(append(w.out, ']'), members...), '}')
	if !w.c.Response().Committed {
		return w.c.Blob(http.StatusOK, "application/json", w.out)
	}
	if err := w.flush(); err != nil {
		return w.Fail(err)
	}
	return nil
}

// AnswerPage answers with one page of a list. next is the cursor of the next page, or nil on the last page.
func AnswerPage[T any](c echo.Context, items []T, next *string) error {
	w := NewItems(c)
	for i := range items {
		if err := w.Add(&items[i]); err != nil {
			return w.Fail(err)
		}
	}
	cursor, err := json.Marshal(next)
	if err != nil {
		return w.Fail(fmt.Errorf("write the cursor: %w", err))
	}
	return w.End(`,"next_cursor":` + string(cursor))
}
