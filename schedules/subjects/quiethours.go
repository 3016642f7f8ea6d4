package subjects

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
)

// QuietHours are a window in which a subject is not to be disturbed: from From on and before To, as clocks in its zone show them ("22:00";
// a To of 24:00 is the end of the day). Days names the days of the week on which the window begins, in cron's syntax ("1-5"); empty: every
// day. Then says what becomes of ticks inside: defer (the last of them waits until the quiet hours end), which is the default, or skip.
type QuietHours struct {
	From string `json:"from"`
	To   string `json:"to"`
	Then string `json:"then,omitempty"`
	Days string `json:"days,omitempty"`
}

// QuietWindows are quiet hours of several windows. In JSON, one window may also stand for the list of it.
type QuietWindows []QuietHours

const mostWindows = 16

// UnmarshalJSON reads a window or a list of windows.
func (q *QuietWindows) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if len(b) > 0 && b[0] == '[' {
		return web.Unmarshal(b, (*[]QuietHours)(q))
	}
	*q = make([]QuietHours, 1)
	return web.Unmarshal(b, &(*q)[0])
}

// MarshalJSON writes one window as an object, and several as a list.
func (q QuietWindows) MarshalJSON() ([]byte, error) {
	switch len(q) {
	case 0:
		return []byte("null"), nil
	case 1:
		return web.Marshal(q[0])
	}
	return web.Marshal([]QuietHours(q))
}

const (
	deferQuiet = "defer"
	skipQuiet  = "skip"
)

// read checks windows, and returns them as they are stored.
func (q QuietWindows) read() (windows calendar.Quiet, err error) {
	if len(q) > mostWindows {
		return nil, fault.Invalid("/quiet_hours", "%d windows are more than %d", len(q), mostWindows)
	}
	var errs []error
	for i, one := range q {
		at := "/quiet_hours"
		if len(q) > 1 {
			at += "/" + strconv.Itoa(i)
		}
		w, err := one.read(at)
		windows, errs = append(windows, w), append(errs, err)
	}
	if err := fault.Join(errs...); err != nil {
		return nil, err
	}
	if windows.LeavesNothing() {
		return nil, fault.Invalid("/quiet_hours", "the windows cover the whole week: leave some time without quiet hours")
	}
	return windows, nil
}

func (q QuietHours) read(at string) (w calendar.Window, err error) {
	from, fromErr := timeOfDay(at+"/from", q.From)
	to, toErr := 24*3600, error(nil)
	if q.To != endOfDay {
		to, toErr = timeOfDay(at+"/to", q.To)
	}
	errs := []error{fromErr, toErr}
	if fromErr == nil && toErr == nil && from == to {
		errs = append(errs, fault.Invalid(at+"/to", "from and to must differ: for a whole day use 00:00 and 24:00"))
	}
	if q.Then != "" && q.Then != deferQuiet && q.Then != skipQuiet {
		errs = append(errs, fault.Invalid(at+"/then", "%q is neither defer nor skip", q.Then))
	}
	w = calendar.Window{From: from, To: to, Skip: q.Then == skipQuiet}
	if q.Days != "" {
		if w.Days, err = calendar.ReadWeekdays(q.Days); err != nil {
			errs = append(errs, fault.Invalid(at+"/days", "%q is not a list of days of the week such as 1-5: %s", q.Days, err))
		}
	}
	return w, fault.Join(errs...)
}

const endOfDay = "24:00"

// timeOfDay reads a time such as 22:00 as seconds of the day.
func timeOfDay(pointer, text string) (int, error) {
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return 0, fault.Invalid(pointer, "%q is not a time of day such as 22:00", text)
	}
	return t.Hour()*3600 + t.Minute()*60, nil
}

func timeOfDayText(sec int) string { return fmt.Sprintf("%02d:%02d", sec/3600, sec/60%60) }

// shownWindow is a window as a client sees it.
func shownWindow(w calendar.Window) QuietHours {
	q := QuietHours{From: timeOfDayText(w.From), To: timeOfDayText(w.To), Then: deferQuiet}
	if w.Skip {
		q.Then = skipQuiet
	}
	q.Days = daysText(w.Days)
	return q
}

// daysText writes days of the week in cron's syntax. Three or more in a row are a range, such as 1-5.
func daysText(days uint8) string {
	var parts []string
	for first := 0; first < 7; {
		last := first
		for days&(1<<last) != 0 {
			last++
		}
		switch n := last - first; {
		case n >= 3:
			parts = append(parts, fmt.Sprintf("%d-%d", first, last-1))
		case n > 0:
			for d := first; d < last; d++ {
				parts = append(parts, strconv.Itoa(d))
			}
		}
		first = max(last, first+1)
	}
	return strings.Join(parts, ",")
}
