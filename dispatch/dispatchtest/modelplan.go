package dispatchtest

import (
	"fmt"
	"time"

	"github.com/carillonhq/carillon/calendar"
)

// Plan is a spec so simple that a few lines can compute its times: every so many minutes of the UTC day, or once.
type Plan struct {
	Every, offset int       // in minutes: the first time of a day is at offset, the next ones each Every
	once          time.Time // the only time, if it is not zero
	end           time.Time // the last possible time; zero: no limit
	most          int       // max_ticks; 0: none
}

func (p Plan) Spec() (s calendar.Spec) {
	if p.once.IsZero() {
		s.Cron = calendar.StringList{fmt.Sprintf("%d %d-23/%d * * *", p.offset%60, p.offset/60, p.Every/60)}
		if p.Every < 60 {
			s.Cron = calendar.StringList{fmt.Sprintf("*/%d * * * *", p.Every)}
		}
		if p.Every == 24*60 {
			s.Cron = calendar.StringList{fmt.Sprintf("%d %d * * *", p.offset%60, p.offset/60)}
		}
	} else {
		s.At = calendar.StringList{p.once.Format(time.RFC3339)}
	}
	if !p.end.IsZero() {
		s.EndAt = new(p.end.Format(time.RFC3339))
	}
	if p.most > 0 {
		s.MaxTicks = &p.most
	}
	return s
}

// next is the first time after a moment.
func (p Plan) next(after time.Time) (time.Time, bool) {
	at := p.once
	if at.IsZero() {
		day := after.Truncate(24 * time.Hour)
		for at = day.Add(time.Duration(p.offset) * time.Minute); !at.After(after); {
			at = at.Add(time.Duration(p.Every) * time.Minute)
			if next := at.Truncate(24 * time.Hour); next.After(day) && at.Sub(next) != time.Duration(p.offset)*time.Minute {
				at = next.Add(time.Duration(p.offset) * time.Minute)
			}
		}
	}
	return at, at.After(after) && (p.end.IsZero() || !at.After(p.end))
}

// between are the times after one moment and up to another.
func (p Plan) between(after, upto time.Time) (all []time.Time) {
	for {
		at, ok := p.next(after)
		if !ok || at.After(upto) {
			return all
		}
		all, after = append(all, at), at
	}
}
