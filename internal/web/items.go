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

// Items writes a list item by item: {"items": […]}. A long answer is never in memory as a whole.
type Items struct {
	c       echo.Context
	one     bytes.Buffer // the item that is being written
	encoder *json.Encoder
	out     []byte // what was not sent yet
	some    bool   // there was an item
	turn    turn   // taken once the answer is long
}

// flushAt is how many bytes of an answer wait until they are sent. A shorter answer is sent at once, with its length.
const flushAt = 64 << 10

// NewItems begins a list.
func NewItems(c echo.Context) *Items {
	w := &Items{c: c, turn: turn{account: accountOf(c.Request().Context())}, out: append(make([]byte, 0, 4<<10), `{"items":[`...)}
	w.encoder = json.NewEncoder(&w.one)
	w.encoder.SetEscapeHTML(false)
	return w
}

// Add writes an item, as Marshal does.
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

// LongRaws is a value that can name its members which may be long. They need not pass through encoding/json then.
type LongRaws interface{ LongRaws() []*Raw }

// encode writes an item as JSON, with a stand-in for each long member. It returns these in their order.
func (w *Items) encode(v any) (raws []Raw, err error) {
	w.one.Reset()
	if long, ok := v.(LongRaws); ok {
		for _, r := range long.LongRaws() {
			if len(*r) <= len(standIn)+4 {
				continue
			}
			was := *r
			defer func() { *r = was }()
			*r, raws = strconv.AppendInt(bytes.Clone(standIn), int64(len(raws)), 10), append(raws, was)
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

// Fail ends a list that cannot be written to its end. If a part of it was sent, the connection is cut, so that nobody takes
// the part for the whole.
func (w *Items) Fail(err error) error {
	if !w.c.Response().Committed {
		return err
	}
	Note(w.c, slog.String("cut", err.Error()))
	panic(http.ErrAbortHandler)
}

// End writes what follows the items: further members of the answer, such as `,"next_cursor":null`.
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

// AnswerPage answers with a page of a list, and the cursor of the next page; nil: there is none.
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
